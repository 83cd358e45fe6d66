(\exec '/usr/bin/env' '-0' '@END_OF_ENVIRONMENT@' >'/proc/self/fd/@DESCRIPTOR@') || (\exec 'env' '-0' '@END_OF_ENVIRONMENT@' >'/proc/self/fd/@DESCRIPTOR@') || __codex_s=
(
  __codex_f=$-
  \trap - 0
  __codex_s=$(\set +o)
  \set +eux
  \unset -f printf umask alias typeset
  \printf '%s\0' "$__codex_s" "$__codex_f" "$(\umask)" "$(\alias)" "$(\typeset -f)" '@END_OF_STATE@' >'/proc/self/fd/@DESCRIPTOR@'
) || __codex_s=
