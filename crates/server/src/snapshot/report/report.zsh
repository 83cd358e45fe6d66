# Reports the state of zsh: its environment, then options, umask, aliases, `fpath`, functions (name and text in turn).
# `script.rs` says which commands such a script may use, replaces the `@WORDS@`, and removes these comments.
# Each item ends with NUL. `__codex_s=` always succeeds, so a failure before `||` does not end the shell.
(dis_functions[exec]=:; \exec '/usr/bin/env' '-0' '@END_OF_ENVIRONMENT@' >&@DESCRIPTOR@) || (dis_functions[exec]=:; \exec 'env' '-0' '@END_OF_ENVIRONMENT@' >&@DESCRIPTOR@) || ('/usr/bin/env' '-0' '@END_OF_ENVIRONMENT@' >&@DESCRIPTOR@) || __codex_s=
(
  __codex_f=("${(@kv)functions[@]}")
  dis_functions[builtin]=:
  \builtin trap - EXIT ZERR DEBUG
  __codex_s="$(\builtin set +o)"
  \builtin emulate -R zsh
  \builtin printf '%s\0' "$__codex_s" "$(\builtin umask)" "$(\builtin alias -L)" "${(j. .)${(@q)fpath}}" "${(@)__codex_f}" '@END_OF_STATE@' >&@DESCRIPTOR@
) || __codex_s=
