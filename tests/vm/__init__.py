"""Other kernels, booted in seconds from Debian's packages, to see Actum where this host is not.

`uml` is user-mode Linux, `qemu` an emulated PC; both run a command on this host's files and bring
back its output and exit code. `scripts/vm` does the same from a shell. The programs that run inside
are in `guest/`. Packages are fetched by name with apt-get and unpacked below build/vm.
"""
