/* Constants of the kernel's interface (x86-64) that musl's headers lack. */
#ifndef KERNEL_H
#define KERNEL_H

#include <sys/syscall.h>
#include <unistd.h>

#ifndef SYS_close_range
#define SYS_close_range 436
#endif
#ifndef SYS_clone3
#define SYS_clone3 435
#endif
#define SYS_LANDLOCK_CREATE_RULESET 444
#define SYS_LANDLOCK_ADD_RULE 445
#define SYS_LANDLOCK_RESTRICT_SELF 446

#define CLOSE_RANGE_MARK_CLOEXEC 4
#define CLONE_INTO_A_CGROUP 0x200000000ULL

#endif
