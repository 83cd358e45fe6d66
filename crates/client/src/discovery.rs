//! Finding the plugins and skills of an environment (the machine of a server), and reading its configuration. The
//! protocol calls a directory with plugins or skills a capability root; this has nothing to do with the capabilities
//! of the server, the extensions that it supports. A sandbox that the server cannot enforce is not sent, and a server
//! that cannot read configuration is not asked for it.

use std::slice;

use protocol::{
    CapabilityFile, CapabilityRoot, ConfigReadParams, ConfigReadResult, DiscoverParams, DiscoveredRoot,
    SandboxContext, methods,
};

use crate::client::ExecServerClient;
use crate::error::ExecServerError;
use crate::path_map::PathMap;

impl ExecServerClient {
    /// Finds the plugins and skills in the directories `roots`. There is one answer for each root, in the order of
    /// `roots`. The answer for a root that cannot be read has an `error`. A root with a sandbox that the server
    /// cannot enforce is not sent; its answer has an `error` too.
    pub async fn discover_capability_roots(
        &self,
        roots: Vec<CapabilityRoot>,
    ) -> Result<Vec<DiscoveredRoot>, ExecServerError> {
        let restricts = |root: &CapabilityRoot| root.sandbox.as_ref().is_some_and(SandboxContext::restricts_files);
        let can_enforce = !roots.iter().any(restricts) || self.capabilities().await?.capability_discovery_sandbox;
        let paths = self.paths();
        let is_sent = |root: &CapabilityRoot| can_enforce || !restricts(root);
        let sent: Vec<_> = roots.iter().filter(|root| is_sent(root)).map(|root| to_remote(root, paths)).collect();
        let params = DiscoverParams { roots: sent.into_iter().collect::<Result<_, _>>()? };
        let answers = match params.roots.as_slice() {
            [] => Vec::new(),
            _ => self.call::<methods::CapabilityRootsDiscover>(&params).await?.roots,
        };
        if answers.len() != params.roots.len() {
            let (sent, answered) = (params.roots.len(), answers.len());
            let problem = format!("exec-server answered {answered} capability roots and was asked for {sent}");
            return Err(ExecServerError::Protocol(problem));
        }
        let mut answered = params.roots.iter().zip(answers);
        let mut discovered = Vec::with_capacity(roots.len());
        for root in roots {
            let answer = if is_sent(&root) { answered.next() } else { None };
            discovered.push(match answer {
                None => failed(root, "exec-server does not support sandboxed capability discovery"),
                Some((sent, answer)) if (&answer.id, &answer.path) == (&sent.id, &sent.path) => {
                    to_local(root, answer, paths)
                }
                Some(_) => failed(root, "exec-server answered with another capability root"),
            });
        }
        Ok(discovered)
    }

    /// Reads some keys of the configuration files of the environment. Returns `None` if the server cannot read them;
    /// the caller treats such an environment as one without configuration.
    pub async fn read_environment_config(
        &self,
        mut params: ConfigReadParams,
    ) -> Result<Option<ConfigReadResult>, ExecServerError> {
        if !self.capabilities().await?.environment_config_read {
            return Ok(None);
        }
        let paths = self.paths();
        if let Some(paths) = paths {
            params.cwd = paths.to_remote(&params.cwd);
        }
        let mut result = self.call::<methods::EnvironmentConfigRead>(&params).await?;
        if let Some(paths) = paths {
            let layers = result.config.layers.iter_mut().chain(&mut result.requirements.layers);
            let homes = result.user_home_dir.iter_mut().chain(slice::from_mut(&mut result.codex_home_dir));
            for path in layers.map(|layer| &mut layer.base_dir).chain(homes) {
                *path = paths.to_local(path);
            }
        }
        Ok(Some(result))
    }
}

/// The root, with its paths mapped to the machine of the server.
fn to_remote(root: &CapabilityRoot, paths: Option<&PathMap>) -> Result<CapabilityRoot, ExecServerError> {
    let Some(paths) = paths else { return Ok(root.clone()) };
    let sandbox = root.sandbox.as_ref().map(|sandbox| paths.map_sandbox_context(sandbox)).transpose();
    let sandbox = sandbox.map_err(ExecServerError::Protocol)?;
    Ok(CapabilityRoot { id: root.id.clone(), path: paths.to_remote(&root.path), sandbox })
}

/// The answer, with its paths mapped to this machine.
fn to_local(root: CapabilityRoot, mut answer: DiscoveredRoot, paths: Option<&PathMap>) -> DiscoveredRoot {
    answer.path = root.path;
    if let Some(paths) = paths {
        let plugin = answer.plugin.iter_mut().flat_map(|plugin| {
            [Some(&mut plugin.manifest), plugin.mcp_config.as_mut(), plugin.apps_config.as_mut()]
                .into_iter()
                .flatten()
        });
        let skills = answer
            .skills
            .iter_mut()
            .flat_map(|skill| [Some(&mut skill.instructions), skill.metadata.as_mut()].into_iter().flatten());
        let files: Vec<&mut CapabilityFile> = plugin.chain(skills).chain(&mut answer.namespace_manifests).collect();
        for file in files {
            file.path = paths.to_local(&file.path);
        }
    }
    answer
}

/// The answer for a root in which nothing could be found, for the reason in `error`.
fn failed(root: CapabilityRoot, error: &str) -> DiscoveredRoot {
    DiscoveredRoot {
        id: root.id,
        path: root.path,
        plugin: None,
        skills: Vec::new(),
        namespace_manifests: Vec::new(),
        warnings: Vec::new(),
        error: Some(error.to_owned()),
    }
}
