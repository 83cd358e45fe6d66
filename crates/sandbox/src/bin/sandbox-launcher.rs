//! The launcher as a program of its own, for the tests of this crate. The server starts its own program as launcher.

fn main() -> std::process::ExitCode {
    sandbox::launcher_main()
}
