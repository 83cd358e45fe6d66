(dis_functions[exec]=:; \exec '/usr/bin/env' '-0' '@END_OF_ENVIRONMENT@' >&@DESCRIPTOR@) || (dis_functions[exec]=:; \exec 'env' '-0' '@END_OF_ENVIRONMENT@' >&@DESCRIPTOR@) || ('/usr/bin/env' '-0' '@END_OF_ENVIRONMENT@' >&@DESCRIPTOR@) || __codex_s=
(
  __codex_f=("${(@kv)functions[@]}")
  dis_functions[builtin]=:
  \builtin trap - EXIT ZERR DEBUG
  __codex_s="$(\builtin set +o)"
  \builtin emulate -R zsh
  \builtin printf '%s\0' "$__codex_s" "$(\builtin umask)" "$(\builtin alias -L)" "${(j. .)${(@q)fpath}}" "${(@)__codex_f}" '@END_OF_STATE@' >&@DESCRIPTOR@
) || __codex_s=
