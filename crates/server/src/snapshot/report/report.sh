# Reports the state of `sh`: its environment, then options, flags, umask, aliases, functions.
# `script.rs` says which commands such a script may use, replaces the `@WORDS@`, and removes these comments.
# `@END_OF_ENVIRONMENT@` becomes an assignment NAME=value, which `env` prints after all other variables.
# `__codex_s` is the options, `__codex_f` the flags.
# Each item ends with NUL. The assignment `__codex_s=` always succeeds, so no failure before `||` ends the shell.
(\exec '/usr/bin/env' '-0' '@END_OF_ENVIRONMENT@' >'/proc/self/fd/@DESCRIPTOR@') || (\exec 'env' '-0' '@END_OF_ENVIRONMENT@' >'/proc/self/fd/@DESCRIPTOR@') || __codex_s=
(
  __codex_f=$-
  \trap - 0
  __codex_s=$(\set +o)
  \set +eux
  \unset -f printf umask alias typeset
  \printf '%s\0' "$__codex_s" "$__codex_f" "$(\umask)" "$(\alias)" "$(\typeset -f)" '@END_OF_STATE@' >'/proc/self/fd/@DESCRIPTOR@'
) || __codex_s=
