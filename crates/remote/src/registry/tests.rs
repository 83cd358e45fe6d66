//! Tests of the calls to a registry.
