//! Selection and rendering of pools from the loaded manifests, with errors and notes for the user.

use mco_api::{PoolName, label};
use mco_core::{
    lint::{self, Fault, Manifests, Pool, suggest},
    render::{self, RenderError, Rendered, SelectError, Selection},
};

use crate::{
    error::{FaultsError, error_with_hint},
    print,
};

/// Operations on manifests that print notes or fail with a hint.
pub(crate) trait ManifestsExt: Sized {
    /// Returns the manifests if they can be rendered, and an error with all faults otherwise.
    fn or_refuse(self) -> anyhow::Result<Self>;

    /// Prints the assumptions and, if `verbose`, the ignored objects.
    fn print_notes(&self, verbose: bool);

    /// Returns the pool of this name, or the only pool.
    fn pool(&self, name: Option<&str>) -> anyhow::Result<&Pool>;

    /// Renders the pool of this name, or all pools that select a MachineConfig.
    fn render_all(&self, name: Option<&str>) -> anyhow::Result<Vec<(&Pool, Rendered)>>;

    /// Renders a pool.
    fn render(&self, pool: &Pool) -> anyhow::Result<Rendered>;

    /// Returns the errors of a config with their locations, or `otherwise` if it has none.
    fn faults_of(&self, config: &str, otherwise: anyhow::Error) -> anyhow::Error;
}

impl ManifestsExt for Manifests {
    fn or_refuse(mut self) -> anyhow::Result<Self> {
        if self.faults.iter().any(Fault::is_error) {
            return Err(anyhow::Error::new(FaultsError(self.faults)));
        }
        if self.all_configs().next().is_none() {
            return Err(error_with_hint(
                "the input contains no MachineConfig",
                "name files or directories with -f, or pipe `kubectl get machineconfigs -o yaml` \
                 into -f -",
            ));
        }
        if self.images.is_none() {
            self.details.push(
                "no ControllerConfig in the input: the OS image stays empty unless a MachineConfig \
                 sets one, so the rendered name differs from the cluster's"
                    .to_owned(),
            );
        }
        Ok(self)
    }

    fn print_notes(&self, verbose: bool) {
        let details = self.details.iter().filter(|_| verbose);
        self.notes.iter().chain(details).for_each(|text| print::note(text));
    }

    fn pool(&self, name: Option<&str>) -> anyhow::Result<&Pool> {
        let names = || self.pools.iter().map(|pool| pool.name.as_str());
        let listed = names().collect::<Vec<_>>().join(", ");
        match (name, self.pools.as_slice()) {
            (Some(name), pools) => {
                pools.iter().find(|pool| pool.name.as_str() == name).ok_or_else(|| {
                    let hint = match suggest::closest(name, names()) {
                        Some(meant) => format!("did you mean {meant}?"),
                        None => format!("the pools are: {listed}"),
                    };
                    error_with_hint(format!("unknown pool {name:?}"), hint)
                })
            }
            (None, [only]) => Ok(only),
            (None, []) => Err(error_with_hint(
                "the input has no pool and no MachineConfig with a role label",
                format!("add the label {}: worker to the MachineConfigs", label::ROLE),
            )),
            (None, [_, ..]) => Err(error_with_hint(
                "the input has several pools",
                format!("choose one with --pool: {listed}"),
            )),
        }
    }

    fn render_all(&self, name: Option<&str>) -> anyhow::Result<Vec<(&Pool, Rendered)>> {
        if name.is_some() || self.pools.len() < 2 {
            let pool = self.pool(name)?;
            return Ok(vec![(pool, self.render(pool)?)]);
        }
        let mut rendered = Vec::new();
        for pool in &self.pools {
            let configs = self.all_configs().map(|config| &config.value);
            match render::select(&pool.value, configs) {
                Err(SelectError::Nothing(_)) => {
                    print::note(&format!("pool {} selects no MachineConfig", pool.name));
                }
                Ok(_) | Err(SelectError::BadSelector { .. }) => {
                    rendered.push((pool, self.render(pool)?));
                }
            }
        }
        if rendered.is_empty() {
            return Err(error_with_hint(
                "no pool selects any MachineConfig of the input",
                "check the role labels against the pools' machineConfigSelector",
            ));
        }
        Ok(rendered)
    }

    fn render(&self, pool: &Pool) -> anyhow::Result<Rendered> {
        let selected = match render::select(&pool.value, self.all_configs().map(|c| &c.value)) {
            Ok(Selection::Configs(configs)) => configs,
            Ok(Selection::Everything) => {
                return Err(error_with_hint(
                    format!("pool {} selects all MachineConfigs", pool.name),
                    "set a machineConfigSelector that names roles",
                ));
            }
            Err(error) => {
                return Err(anyhow::Error::new(error).context(failed_to_render(&pool.name)));
            }
        };
        let images = self.images.clone().unwrap_or_default();
        render::pool(&pool.name, &selected, &images)
            .map_err(|error| render_error(self, pool, error))
    }

    fn faults_of(&self, config: &str, otherwise: anyhow::Error) -> anyhow::Error {
        let label = format!("MachineConfig/{config}");
        let mut faults = lint::check(self);
        faults.retain(|fault| fault.is_error() && fault.object.as_ref() == Some(&label));
        if faults.is_empty() { otherwise } else { anyhow::Error::new(FaultsError(faults)) }
    }
}

/// Converts a render error; the error of one config becomes the faults of that config.
fn render_error(manifests: &Manifests, pool: &Pool, error: RenderError) -> anyhow::Error {
    let culprit = match &error {
        RenderError::Invalid { config, .. } | RenderError::Upgrade { config, .. } => {
            Some(config.clone())
        }
        RenderError::Nothing(_)
        | RenderError::NoLabels(_)
        | RenderError::KernelDevel(_)
        | RenderError::Unhashable { .. }
        | RenderError::Name { .. }
        | RenderError::TooLarge { .. }
        | RenderError::Path { .. }
        | RenderError::StreamAndOverride => None,
    };
    let error = anyhow::Error::new(error);
    let error = match culprit {
        Some(config) => manifests.faults_of(&config, error),
        None => error,
    };
    error.context(failed_to_render(&pool.name))
}

fn failed_to_render(pool: &PoolName) -> String {
    format!("failed to render pool {pool}")
}
