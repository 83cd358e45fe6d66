# Reports the state of zsh: its environment, then options, umask, aliases, `fpath`, functions (name and text in turn).
# `script.rs` says which commands such a script may use, replaces the `@WORDS@`, and removes these comments.
# `@END_OF_ENVIRONMENT@` becomes an assignment NAME=value, which `env` prints after all other variables.
# `__codex_s` is the options, and `__codex_f` the functions.
# Each item ends with NUL. The assignment `__codex_s=` always succeeds, so no failure before `||` ends the shell.
(dis_functions[exec]=:; \exec '/usr/bin/env' '-0' '@END_OF_ENVIRONMENT@' >&@DESCRIPTOR@) || (dis_functions[exec]=:; \exec 'env' '-0' '@END_OF_ENVIRONMENT@' >&@DESCRIPTOR@) || ('/usr/bin/env' '-0' '@END_OF_ENVIRONMENT@' >&@DESCRIPTOR@) || __codex_s=
(
  __codex_f=("${(@kv)functions[@]}")
  dis_functions[builtin]=:
  \builtin trap - EXIT ZERR DEBUG
  __codex_s="$(\builtin set +o)"
  \builtin emulate -R zsh
  \builtin printf '%s\0' "$__codex_s" "$(\builtin umask)" "$(\builtin alias -L)" "${(j. .)${(@q)fpath}}" "${(@)__codex_f}" '@END_OF_STATE@' >&@DESCRIPTOR@
) || __codex_s=
