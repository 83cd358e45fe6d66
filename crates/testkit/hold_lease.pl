# Holds a write lease on the file that the variable FILE names, so that every other process that opens the file waits.
# Prints `leased` when it has the lease, and `wanted` when another process opens the file. Gives the lease up at the end of its stdin.
use Fcntl qw(F_SETLEASE F_WRLCK F_UNLCK);
$| = 1;
$SIG{IO} = sub { print "wanted\n" };
open my $file, "<", $ENV{FILE} or die "open: $!";
fcntl $file, F_SETLEASE, F_WRLCK or die "lease: $!";
print "leased\n";
1 while defined <STDIN> or $!{EINTR};
fcntl $file, F_SETLEASE, F_UNLCK;
