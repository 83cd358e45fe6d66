# Reports the state of `sh`: its environment, then options, flags, umask, aliases, functions.
# `script.rs` says which commands such a script may use, replaces the `@WORDS@`, and removes these comments.
# Each item ends with NUL. `__codex_s=` always succeeds, so a failure before `||` does not end the shell.
(\exec '/usr/bin/env' '-0' '@END_OF_ENVIRONMENT@' >'/proc/self/fd/@DESCRIPTOR@') || (\exec 'env' '-0' '@END_OF_ENVIRONMENT@' >'/proc/self/fd/@DESCRIPTOR@') || __codex_s=
(
  __codex_f=$-
  \trap - 0
  __codex_s=$(\set +o)
  \set +eux
  \unset -f printf umask alias typeset
  \printf '%s\0' "$__codex_s" "$__codex_f" "$(\umask)" "$(\alias)" "$(\typeset -f)" '@END_OF_STATE@' >'/proc/self/fd/@DESCRIPTOR@'
) || __codex_s=
