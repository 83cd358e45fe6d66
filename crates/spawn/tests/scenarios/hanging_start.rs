//! A start that hangs while the kernel opens the program, as it does on a network file system whose server is gone. A lease, which the
//! kernel asks its holder to give up before anybody else may open the file, hangs it just as well.

use std::sync::Arc;

use spawn::ExitStatus;
use tempfile::tempdir;

use crate::support::{World, command, perl, read_until, with_stdin, within};

/// Takes a lease, says when somebody wants to open the file, and gives the lease up at the end of its stdin.
const HOLD_LEASE: &str = r#"
    use Fcntl qw(F_SETLEASE F_WRLCK F_UNLCK);
    $| = 1;
    $SIG{IO} = sub { print "wanted\n" };
    open my $file, "<", $ENV{FILE} or die "open: $!";
    fcntl $file, F_SETLEASE, F_WRLCK or die "lease: $!";
    print "leased\n";
    1 while defined <STDIN> or $!{EINTR};
    fcntl $file, F_SETLEASE, F_UNLCK;
"#;

#[tokio::test]
async fn a_start_that_hangs_keeps_nothing_of_other_processes_open() {
    let directory = tempdir().unwrap();
    let program = directory.path().join("program");
    std::fs::copy("/bin/true", &program).unwrap();
    let world = Arc::new(World::new());
    let mut hold_lease = with_stdin(perl(HOLD_LEASE));
    hold_lease.env.push(("FILE".into(), program.clone().into()));
    let mut holder = world.start(&hold_lease);
    read_until(&holder.stdout, "leased").await;
    let mut cat = world.start(&with_stdin(command(["cat"])));

    let hanging = command([program.to_str().unwrap()]);
    let starting = tokio::task::spawn_blocking({
        let world = Arc::clone(&world);
        move || world.start(&hanging)
    });
    read_until(&holder.stdout, "wanted").await;
    drop(cat.stdin.take());
    assert_eq!(within(cat.child.wait()).await, ExitStatus::Exited(0));
    assert!(!starting.is_finished(), "the end of stdin came only after the start");

    drop(holder.stdin.take());
    let started = within(starting).await.unwrap();
    assert_eq!(within(started.child.wait()).await, ExitStatus::Exited(0));
}
