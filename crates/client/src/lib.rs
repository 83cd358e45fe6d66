//! The client of exec-server: one object that stays alive while its connection changes underneath.
#![forbid(unsafe_code)]

mod environments;
mod path_map;

pub use environments::{EntryProblem, EnvironmentSpec, Environments, EnvironmentsError, Problem, Surroundings, Way};
pub use path_map::{PathMap, PathMapError};
