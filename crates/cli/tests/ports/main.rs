//! Ports of an environment on this machine.
