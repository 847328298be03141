//! Typed requests for the objects of one kind.
//!
//! [`Api`] has the methods of kube's type of that name. It differs in one point: an answer is decoded
//! by the kind's own [`Object::decode`], which is compiled once, in this crate. kube's type compiles
//! the decoder, and its watch, again in each crate that uses a kind; that was most of the build.

mod object;
mod raw;

use std::{fmt, marker::PhantomData};

use http::header::CONTENT_TYPE;
use kube::{
    Client, Error, Resource,
    api::{DeleteParams, GetParams, ListParams, Patch, PatchParams, PostParams, Request},
    core::{NamespaceResourceScope, ObjectList, TypeMeta, request},
};
use serde::Serialize;

pub use object::Object;

use crate::{client::namespace, watch::Unreadable};

/// The objects of one kind, in one namespace or in all of them.
pub struct Api<K> {
    client: Client,
    namespace: Option<String>,
    kind: PhantomData<fn() -> K>,
}

impl<K> Clone for Api<K> {
    fn clone(&self) -> Self {
        Self { client: self.client.clone(), namespace: self.namespace.clone(), kind: PhantomData }
    }
}

impl<K> fmt::Debug for Api<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Api").field("namespace", &self.namespace).finish_non_exhaustive()
    }
}

impl<K: Object> Api<K> {
    /// Returns the objects of a cluster-scoped kind, or of all namespaces.
    #[must_use]
    pub fn all(client: Client) -> Self {
        Self { client, namespace: None, kind: PhantomData }
    }

    /// Returns the objects in one namespace.
    #[must_use]
    pub fn namespaced(client: Client, namespace: &str) -> Self
    where
        K: Resource<Scope = NamespaceResourceScope>,
    {
        Self { client, namespace: Some(namespace.to_owned()), kind: PhantomData }
    }

    /// Returns the objects in the namespace of the installation that the client belongs to.
    #[must_use]
    pub fn own(client: Client) -> Self
    where
        K: Resource<Scope = NamespaceResourceScope>,
    {
        let namespace = namespace(&client).to_owned();
        Self { client, namespace: Some(namespace), kind: PhantomData }
    }

    /// Fetches an object.
    pub async fn get(&self, name: &str) -> Result<K, Error> {
        self.decoded(self.request().get(name, &GetParams::default())).await
    }

    /// Fetches an object; `None` if it does not exist.
    pub async fn get_opt(&self, name: &str) -> Result<Option<K>, Error> {
        match self.get(name).await {
            Ok(object) => Ok(Some(object)),
            Err(Error::Api(status)) if status.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Fetches the objects that `params` select.
    pub async fn list(&self, params: &ListParams) -> Result<ObjectList<K>, Error> {
        let text = call(&self.client, self.request().list(params)).await?;
        let list = raw::List::decode(&text)?;
        let items = list.items.iter().map(|item| decode(item.get())).collect::<Result<_, _>>()?;
        Ok(ObjectList { types: TypeMeta::default(), metadata: list.metadata, items })
    }

    /// Creates an object and returns it as the API server stored it.
    pub async fn create(&self, params: &PostParams, object: &K) -> Result<K, Error> {
        let body = object.encode().map_err(Error::SerdeError)?;
        self.decoded(self.request().create(params, body)).await
    }

    /// Replaces an object and returns it as the API server stored it.
    pub async fn replace(&self, name: &str, params: &PostParams, object: &K) -> Result<K, Error> {
        let body = object.encode().map_err(Error::SerdeError)?;
        self.decoded(self.request().replace(name, params, body)).await
    }

    /// Patches an object and returns it as the API server stored it.
    pub async fn patch<P: Serialize + fmt::Debug>(
        &self,
        name: &str,
        params: &PatchParams,
        patch: &Patch<P>,
    ) -> Result<K, Error> {
        self.decoded(self.request().patch(name, params, patch)).await
    }

    /// Patches the status of an object and returns the object as the API server stored it.
    pub async fn patch_status<P: Serialize + fmt::Debug>(
        &self,
        name: &str,
        params: &PatchParams,
        patch: &Patch<P>,
    ) -> Result<K, Error> {
        self.decoded(self.request().patch_subresource("status", name, params, patch)).await
    }

    /// Patches the approval of a certificate request and returns the object as the API server stored it.
    pub async fn patch_approval<P: Serialize + fmt::Debug>(
        &self,
        name: &str,
        params: &PatchParams,
        patch: &Patch<P>,
    ) -> Result<K, Error> {
        self.decoded(self.request().patch_subresource("approval", name, params, patch)).await
    }

    /// Deletes an object.
    pub async fn delete(&self, name: &str, params: &DeleteParams) -> Result<(), Error> {
        call(&self.client, self.request().delete(name, params)).await.map(drop)
    }

    /// Evicts the pod with this name and UID.
    ///
    /// The API server rejects the eviction of another pod of the same name as a conflict.
    pub async fn evict(&self, name: &str, uid: &str) -> Result<(), Error> {
        // kube's own request sends the options under a name that the API server does not know.
        let body = serde_json::json!({
            "apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name},
            "deleteOptions": {"preconditions": {"uid": uid}},
        });
        let body = serde_json::to_vec(&body).map_err(Error::SerdeError)?;
        let path = format!("{}/{name}/eviction", self.request().url_path);
        let request = http::Request::post(path).header(CONTENT_TYPE, "application/json");
        call(&self.client, request.body(body).map_err(request::Error::BuildRequest)).await.map(drop)
    }

    /// Returns the client and the request builder, for a watch.
    pub(crate) fn parts(&self) -> (Client, Request) {
        (self.client.clone(), self.request())
    }

    fn request(&self) -> Request {
        Request::new(K::url_path(&(), self.namespace.as_deref()))
    }

    async fn decoded(
        &self,
        request: Result<http::Request<Vec<u8>>, request::Error>,
    ) -> Result<K, Error> {
        let text = call(&self.client, request).await?;
        decode(&text)
    }
}

/// Decodes an object. The error names the object and the position of the fault, not its contents.
fn decode<K: Object>(text: &str) -> Result<K, Error> {
    K::decode(text).map_err(|error| {
        let unreadable = Unreadable::of::<K>(text, &error);
        Error::SerdeError(serde::de::Error::custom(unreadable))
    })
}

/// Sends a request and returns the body of a successful answer.
async fn call(
    client: &Client,
    request: Result<http::Request<Vec<u8>>, request::Error>,
) -> Result<String, Error> {
    client.request_text(request.map_err(Error::BuildRequest)?).await
}
