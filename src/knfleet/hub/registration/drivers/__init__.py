"""Ways in which clusters register. The certificate request is one."""
