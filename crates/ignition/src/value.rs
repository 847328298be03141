//! [`Field`] for the values inside Ignition objects: strings, numbers, booleans, and lists.

use crate::{
    json::{Node, Value},
    object::{Decoder, Field},
    report::Step,
    spec::Spec,
    tree::Tree,
};

impl Field for String {
    fn is_empty(&self) -> bool {
        self.as_str().is_empty()
    }

    const BLANK: Tree<'static> = Tree::Text("");

    fn tree(&self, _: Spec) -> Tree<'_> {
        Tree::Text(self)
    }

    fn decode(&mut self, node: Node<'_>, decoder: &mut Decoder) {
        match node.value {
            Value::String(text) => *self = text.into_owned(),
            Value::Null => {}
            other @ (Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_)) => {
                decoder.mismatch("a string", &other);
            }
        }
    }

    fn merge(&mut self, child: Self) {
        *self = child;
    }
}

impl Field for i64 {
    fn is_empty(&self) -> bool {
        *self == 0
    }

    const BLANK: Tree<'static> = Tree::Int(0);

    fn tree(&self, _: Spec) -> Tree<'_> {
        Tree::Int(*self)
    }

    fn decode(&mut self, node: Node<'_>, decoder: &mut Decoder) {
        match node.value {
            Value::Number(text) => match text.parse() {
                Ok(number) => *self = number,
                Err(_) => decoder.mismatch("a whole number", &Value::Number(text)),
            },
            Value::Null => {}
            other @ (Value::Bool(_) | Value::String(_) | Value::Array(_) | Value::Object(_)) => {
                decoder.mismatch("a number", &other);
            }
        }
    }

    fn merge(&mut self, child: Self) {
        *self = child;
    }
}

impl Field for bool {
    fn is_empty(&self) -> bool {
        !*self
    }

    const BLANK: Tree<'static> = Tree::Bool(false);

    fn tree(&self, _: Spec) -> Tree<'_> {
        Tree::Bool(*self)
    }

    fn decode(&mut self, node: Node<'_>, decoder: &mut Decoder) {
        match node.value {
            Value::Bool(switch) => *self = switch,
            Value::Null => {}
            other @ (Value::Number(_) | Value::String(_) | Value::Array(_) | Value::Object(_)) => {
                decoder.mismatch("a bool", &other);
            }
        }
    }

    fn merge(&mut self, child: Self) {
        *self = child;
    }
}

impl<T: Field> Field for Option<T> {
    fn is_empty(&self) -> bool {
        self.is_none()
    }

    // Only needed for members that older versions require; those had no optional type.
    const BLANK: Tree<'static> = T::BLANK;

    fn tree(&self, spec: Spec) -> Tree<'_> {
        self.as_ref().map_or(Self::BLANK, |value| value.tree(spec))
    }

    fn decode(&mut self, node: Node<'_>, decoder: &mut Decoder) {
        if matches!(node.value, Value::Null) {
            *self = None;
        } else {
            self.get_or_insert_default().decode(node, decoder);
        }
    }

    fn fill(&mut self) {
        self.get_or_insert_default();
    }

    fn merge(&mut self, child: Self) {
        if child.is_some() {
            *self = child;
        }
    }
}

impl<T: crate::merge::Item> Field for Vec<T> {
    fn is_empty(&self) -> bool {
        self.as_slice().is_empty()
    }

    const BLANK: Tree<'static> = Tree::List(Vec::new());

    fn tree(&self, spec: Spec) -> Tree<'_> {
        Tree::List(self.iter().map(|item| item.tree(spec)).collect())
    }

    fn decode(&mut self, node: Node<'_>, decoder: &mut Decoder) {
        let nodes = match node.value {
            Value::Array(nodes) => nodes,
            Value::Null => return self.clear(),
            other @ (Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_)) => {
                return decoder.mismatch("a list", &other);
            }
        };
        // Compat: a duplicate list is decoded item by item on top of the first one.
        self.resize_with(nodes.len(), T::default);
        for (index, (item, node)) in self.iter_mut().zip(nodes).enumerate() {
            decoder.at(Step::Index(index), |decoder| item.decode(node, decoder));
        }
    }

    fn merge(&mut self, child: Self) {
        crate::merge::merge_lists(self, child);
    }

    fn append(&mut self, child: Self) {
        self.extend(child);
    }
}
