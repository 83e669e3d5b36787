"""The system calls of x86-64: their numbers, and which of them a tool may make.

The kernel's table is complete up to Linux 6.18. `tests/unit/sandbox/test_system_calls.py` compares
it with the headers of this machine.
"""

from __future__ import annotations

#: In the order of their numbers, from 0. 335 and 336 are missing: uprobes of the host make these
#: calls in the processes that they watch. The kernel shows them to no filter, and kills any other
#: caller.
_FIRST = """
read write open close stat fstat lstat poll lseek mmap mprotect munmap brk rt_sigaction
rt_sigprocmask rt_sigreturn ioctl pread64 pwrite64 readv writev access pipe select sched_yield
mremap msync mincore madvise shmget shmat shmctl dup dup2 pause nanosleep getitimer alarm
setitimer getpid sendfile socket connect accept sendto recvfrom sendmsg recvmsg shutdown bind
listen getsockname getpeername socketpair setsockopt getsockopt clone fork vfork execve exit
wait4 kill uname semget semop semctl shmdt msgget msgsnd msgrcv msgctl fcntl flock fsync
fdatasync truncate ftruncate getdents getcwd chdir fchdir rename mkdir rmdir creat link unlink
symlink readlink chmod fchmod chown fchown lchown umask gettimeofday getrlimit getrusage sysinfo
times ptrace getuid syslog getgid setuid setgid geteuid getegid setpgid getppid getpgrp setsid
setreuid setregid getgroups setgroups setresuid getresuid setresgid getresgid getpgid setfsuid
setfsgid getsid capget capset rt_sigpending rt_sigtimedwait rt_sigqueueinfo rt_sigsuspend
sigaltstack utime mknod uselib personality ustat statfs fstatfs sysfs getpriority setpriority
sched_setparam sched_getparam sched_setscheduler sched_getscheduler sched_get_priority_max
sched_get_priority_min sched_rr_get_interval mlock munlock mlockall munlockall vhangup
modify_ldt pivot_root _sysctl prctl arch_prctl adjtimex setrlimit chroot sync acct settimeofday
mount umount2 swapon swapoff reboot sethostname setdomainname iopl ioperm create_module
init_module delete_module get_kernel_syms query_module quotactl nfsservctl getpmsg putpmsg
afs_syscall tuxcall security gettid readahead setxattr lsetxattr fsetxattr getxattr lgetxattr
fgetxattr listxattr llistxattr flistxattr removexattr lremovexattr fremovexattr tkill time futex
sched_setaffinity sched_getaffinity set_thread_area io_setup io_destroy io_getevents io_submit
io_cancel get_thread_area lookup_dcookie epoll_create epoll_ctl_old epoll_wait_old
remap_file_pages getdents64 set_tid_address restart_syscall semtimedop fadvise64 timer_create
timer_settime timer_gettime timer_getoverrun timer_delete clock_settime clock_gettime
clock_getres clock_nanosleep exit_group epoll_wait epoll_ctl tgkill utimes vserver mbind
set_mempolicy get_mempolicy mq_open mq_unlink mq_timedsend mq_timedreceive mq_notify
mq_getsetattr kexec_load waitid add_key request_key keyctl ioprio_set ioprio_get inotify_init
inotify_add_watch inotify_rm_watch migrate_pages openat mkdirat mknodat fchownat futimesat
newfstatat unlinkat renameat linkat symlinkat readlinkat fchmodat faccessat pselect6 ppoll
unshare set_robust_list get_robust_list splice tee sync_file_range vmsplice move_pages utimensat
epoll_pwait signalfd timerfd_create eventfd fallocate timerfd_settime timerfd_gettime accept4
signalfd4 eventfd2 epoll_create1 dup3 pipe2 inotify_init1 preadv pwritev rt_tgsigqueueinfo
perf_event_open recvmmsg fanotify_init fanotify_mark prlimit64 name_to_handle_at
open_by_handle_at clock_adjtime syncfs sendmmsg setns getcpu process_vm_readv process_vm_writev
kcmp finit_module sched_setattr sched_getattr renameat2 seccomp getrandom memfd_create
kexec_file_load bpf execveat userfaultfd membarrier mlock2 copy_file_range preadv2 pwritev2
pkey_mprotect pkey_alloc pkey_free statx io_pgetevents rseq
"""
#: From 424, where the numbers of all architectures became one sequence.
_UNIFIED = """
pidfd_send_signal io_uring_setup io_uring_enter io_uring_register open_tree move_mount fsopen
fsconfig fsmount fspick pidfd_open clone3 close_range openat2 pidfd_getfd faccessat2
process_madvise epoll_pwait2 mount_setattr quotactl_fd landlock_create_ruleset landlock_add_rule
landlock_restrict_self memfd_secret process_mrelease futex_waitv set_mempolicy_home_node
cachestat fchmodat2 map_shadow_stack futex_wake futex_wait futex_requeue statmount listmount
lsm_get_self_attr lsm_set_self_attr lsm_list_modules mseal setxattrat getxattrat listxattrat
removexattrat open_tree_attr file_getattr file_setattr
"""

NUMBERS = {name: number for number, name in enumerate(_FIRST.split())}
NUMBERS |= {name: number for number, name in enumerate(_UNIFIED.split(), 424)}

#: Observed in compilers, interpreters, version control, package managers, databases and network
#: clients.
_SEEN = """
accept4 access alarm arch_prctl bind brk capget chdir chmod chown clock_getres clock_gettime
clock_nanosleep clone close close_range connect copy_file_range creat dup dup2 dup3
epoll_create1 epoll_ctl epoll_pwait epoll_wait eventfd2 execve exit exit_group faccessat2
fadvise64 fallocate fchdir fchmod fchmodat fchown fchownat fcntl fdatasync fgetxattr flistxattr
flock fsetxattr fstat fstatfs fsync ftruncate futex getcwd getdents64 getegid geteuid getgid
getgroups getpeername getpgrp getpid getppid getpriority getrandom getrlimit getrusage
getsockname getsockopt gettid getuid getxattr inotify_add_watch inotify_init1 ioctl ioprio_set
kill lgetxattr link linkat listen listxattr llistxattr lseek lstat madvise memfd_create mkdir
mkdirat mknodat mlock mmap mprotect munmap nanosleep newfstatat open openat pidfd_open pipe2
pkey_alloc poll prctl pread64 prlimit64 pselect6 pwrite64 read readlink readlinkat recvfrom
recvmsg removexattr rename renameat renameat2 restart_syscall rmdir rseq rt_sigaction
rt_sigprocmask rt_sigreturn rt_sigsuspend sched_getaffinity sched_getattr sched_setaffinity
sched_yield sendfile sendmsg sendto set_robust_list set_tid_address setitimer setpgid
setpriority setresgid setresuid setsid setsockopt setxattr shutdown sigaltstack signalfd4 socket
socketpair stat statfs statx symlink symlinkat sysinfo tgkill timer_create timer_settime umask
uname unlink unlinkat utimensat vfork wait4 waitid write writev
"""
#: Used by other C libraries, languages, databases and just-in-time compilers.
_KEPT = """
accept cachestat capset epoll_create epoll_pwait2 eventfd execveat faccessat fchmodat2 fork
fremovexattr futex_waitv futimesat get_robust_list getcpu getdents getitimer getpgid getresgid
getresuid getsid gettimeofday inotify_init inotify_rm_watch ioprio_get landlock_add_rule
landlock_create_ruleset landlock_restrict_self lchown lremovexattr lsetxattr membarrier mincore
mknod mlock2 mlockall mq_getsetattr mq_notify mq_open mq_timedreceive mq_timedsend mq_unlink
mremap msgctl msgget msgrcv msgsnd msync munlock munlockall pause personality pidfd_send_signal
pipe pkey_free pkey_mprotect ppoll preadv preadv2 process_madvise pwritev pwritev2 readahead
readv recvmmsg rt_sigpending rt_sigqueueinfo rt_sigtimedwait rt_tgsigqueueinfo
sched_get_priority_max sched_get_priority_min sched_getparam sched_getscheduler
sched_rr_get_interval sched_setattr sched_setparam sched_setscheduler seccomp select semctl
semget semop semtimedop sendmmsg setfsgid setfsuid setgid setgroups setregid setreuid setrlimit
setuid shmat shmctl shmdt shmget signalfd splice sync sync_file_range syncfs tee time
timer_delete timer_getoverrun timer_gettime timerfd_create timerfd_gettime timerfd_settime times
tkill truncate utime utimes
"""

#: `seccomp` judges the arguments of some of them.
ALLOWED = frozenset((*_SEEN.split(), *_KEPT.split()))
