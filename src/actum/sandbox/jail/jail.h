/* The inner part of a sandbox: its init (pid 1), the process that becomes the tool, and the spawner that
 * clones them.
 *
 * One small static program. A process cloned into new namespaces builds the sandbox, waits for one
 * request, starts one tool, reaps, answers system calls, reports. Every failure is reported to the host
 * with its reason; nothing is retried and nothing is guessed.
 *
 * Single-threaded, allocates memory once; all descriptors are close-on-exec.
 */
#ifndef JAIL_H
#define JAIL_H

#define _GNU_SOURCE
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* As in wire.py; a test compares them. */
enum {
    MAX_INLINE = 32768,  /* a longer request comes as a file */
    MAX_PACKET = 65536,
    MAX_PASSED = 250,    /* descriptors in one message */
    MAX_DENIALS = 64,
    MAX_LIMITS = 16, MAX_USAGE = 16, MAX_DOORS = 8, MAX_FOLDERS = 8,
    FILE_BYTES = 4096,   /* read limit for one file of a control group */
    PATH_ROOM = 4096, NAME_ROOM = 256,
};
#define ARTIFACTS "/artifacts"
#define PROVIDED "/run/actum"

/* -- the request (wire.c), in the order of the packet, which stays in place ---------------------------- */

/* `layers` is "" where the tool works on the host's own files; else the folder whose `upper` takes every
 * change (opener.c). `source` is "" where the file at `path` itself is shown; else the sealed copy of an
 * input, which is shown at `path` instead. */
/* The image of a request, if it has one, is the first grant: its path is "/", its source the unpacked tree. */
/* `tried`: a test whether an overlay works with its layers; not for a tool. */
struct grant { const char *path; int write, tried; uint64_t device, inode; const char *layers, *source; };
struct file  { const char *name; const unsigned char *content; uint32_t size; };
struct pair  { const char *name, *text; };
struct door  { const char *address; uint16_t port; };

#define LIST(kind, name) const kind *name; uint32_t name##_count
struct request {
    const char *const *argv, *const *environment; /* both end with NULL */
    const char *executable;
    uint64_t executable_device, executable_inode;
    const char *working_directory;
    LIST(struct file, secrets); /* no name */
    LIST(struct grant, grants);
    LIST(char *const, protect);
    LIST(char *const, deny);
    LIST(char *const, limits); /* texts for the files of the groups, in their order */
    uint64_t scratch_bytes, artifacts_bytes, max_children;
    LIST(struct pair, etc);
    LIST(char *const, addresses);
    LIST(struct door, listen);
    LIST(struct file, provided);
    const char *resolver; /* "" for none */
};

static inline int has_image(const struct request *request)
{
    return request->grants_count && request->grants[0].path[0] == '/' && !request->grants[0].path[1];
}

/* -- this member (init.c): set once, from its arguments ------------------------------------------- */

struct member {
    int control, trees;
    int streams[3]; /* of the tool's process; closed in the init after the fork */
    int go;         /* an eventfd: first ring, the request is in `control`; second ring, start */
    int spawner;        /* a pidfd: whether it is alive */
    int filter;         /* a file that holds the compiled filter */
    int abi;            /* of Landlock */
    uid_t uid;
    gid_t gid;
    int rootless, steady;
    int contained; /* an engine made the namespaces, the groups and the root (container.c) */
    int interprets; /* the tool's process was forked from an interpreter */
    uint64_t scratch_bytes;
    int born_inside; /* the control group that the tool's process is cloned into, or -1 */
    int task_limit;  /* pids.max */
    int limits[MAX_LIMITS], limit_count;
    const char *limit_texts[MAX_LIMITS]; /* the current content of the files */
    int usage[MAX_USAGE], usage_count;
    int doors[MAX_DOORS], door_count;
    int folders[MAX_FOLDERS], folder_count; /* the control groups themselves */
    const char *group;                      /* the name of all of them */
    int rules; /* the ruleset of Landlock */
    pid_t tool;
    int channel;  /* between the init and the tool's process */
    int listener; /* seccomp notifications for the init */
};
extern struct member member;

/* Whether to run only once the process that woke us sleeps or has used up its time slice (SCHED_BATCH).
 * The host rings and goes on, to a disk write that it will wait for anyway. On a machine whose other
 * processors are in a deep sleep the kernel puts us on the host's processor, and we would delay it. A
 * failure is harmless. */
void keep_back(int yes);
/* In the cloned process. */
_Noreturn void be_init(void);
/* The spawner (serve.c) and the opener (opener.c), with these arguments. */
_Noreturn void serve(char **words);
_Noreturn void serve_openings(char **words);

/* In pid 1 of a container that an engine has made (container.c), with these arguments. */
_Noreturn void be_contained(char **words);

/* The rest of an init, once it is prepared (init.c). */
const struct request *receive_request(void);
void permit_the_common(void);
void permit_grants(const struct request *);
void require_judged(const struct request *);
void close_the_tools(void);

/* The arguments of a program (words.c). */
#define SENT_ALONG "#"
void begin_words(char **first);
char *next_word(void);
int64_t next_number(void);
int next_count(int most);
void end_words(void);
void read_member(char **words);
/* The same for another process that executes an init: its length, and the descriptors to send with it,
 * with space for MAX_PASSED. */
size_t write_member(char *room, size_t size, int *descriptors, int *count);

/* Reports to the host that nothing was started, with the reason, and exits. Before the request has come
 * it waits for one; without one it just exits. */
_Noreturn void fail(const char *reason, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The same with SANDBOX_UNAVAILABLE and the text of errno: "WHAT: Operation not permitted", or the
 * error's text alone where `what` is NULL. `what` is a format. */
_Noreturn void fail_errno(const char *what, ...) __attribute__((format(printf, 1, 2)));
/* An error's text as in glibc, so that it equals the host's (calls.h is generated from them). */
const char *error_text(int number);

/* -- packets and reports (wire.c) ---------------------------------------------------------------- */

/* One packet with its descriptors (close-on-exec); interrupted calls are repeated. Returns its length; 0
 * once the other side has closed the socket; -1 with errno. `*count` is the number of descriptors, at
 * most MAX_PASSED; `descriptors` has space for that many. */
ssize_t receive(int channel, void *room, size_t size, int *descriptors, int *count);
/* Returns when an eventfd is rung, and consumes one ring. */
void heard(int bell);
/* 0, or -1 with errno. */
int pass(int channel, const void *packet, size_t size, const int *descriptors, int count);

/* The request in this packet: read in place, or, if it is larger than a packet, from the file that is the
 * first descriptor, which is closed. The others begin at `*others`. A malformed request ends in `fail`. */
const struct request *open_request(const unsigned char *packet, size_t size, const int *descriptors,
                                   int count, int *others);
/* Host -> opener: open these for a member, whose socket is in the same packet. */
struct openings {
    uint64_t owner_uid, owner_gid;
    LIST(struct grant, grants);
};
/* As `open_request`; content that does not fit into a packet is held until it is closed. */
const struct openings *open_openings(const unsigned char *packet, size_t size, const int *descriptors,
                                     int count, int *others);
void close_openings(void);
/* Host -> spawner: prepare one member. */
struct order {
    int allow_fork, steady, interpreter;
    uint64_t scratch_bytes;
    LIST(char *const, limits);
};
enum { MAKE = 'M', LEARN = 'L' };
const struct order *read_order(const unsigned char *packet, size_t size);
/* The host's request for more listeners: returns the address, and puts the ports into `ports`. NULL if it
 * is another message. */
const char *read_listen_order(const unsigned char *packet, size_t size, uint16_t *ports, int most, int *count);

/* A report is one JSON text, built in a fixed buffer. One that does not fit ends in exit, which the host
 * treats as the sandbox's death: there is never half a report. */
struct text { size_t length; char room[MAX_PACKET]; };
void put(struct text *, const char *raw);                 /* unescaped */
void put_string(struct text *, const char *, size_t size); /* quoted and escaped; any bytes */
void put_words(struct text *, const char *);              /* the same, up to the NUL */
void put_number(struct text *, int64_t);
/* To the host, with descriptors. If the host is gone, this process exits, and the tree dies with it. */
void report(const struct text *, const int *descriptors, int count);

/* -- the tool's process (tool.c) ------------------------------------------------------------------ */

void fork_tool(void);          /* sets member.tool, member.channel */
void await_filtered(void);     /* sets member.listener */
void tell_tool(const void *packet, size_t size, const int *descriptors, int count);
void confine_tool(void);       /* once the root and the rules are complete */

/* -- Landlock (landlock.c) ------------------------------------------------------------------------ */

extern const uint64_t RIGHTS_READ, RIGHTS_WRITE, RIGHTS_DEVICES, RIGHTS_DROP;
int new_ruleset(int abi);                              /* permits nothing yet; -1 with errno */
void permit(int rules, const char *path, uint64_t rights, int abi); /* or `fail_errno` */
int restrict_self(int rules);                          /* 0, or -1 with errno */

/* -- control groups (group.c) --------------------------------------------------------------------- */

void limit_group(const char *const *texts, uint32_t count); /* unless they are set already */
void put_usage(struct text *);                              /* the texts of the files, as a JSON list */
int counts_oom_kill(void); /* by the first of them, whether the kernel has killed for memory */
int remove_groups(int at, int last);                        /* downwards; whether all were removed */

/* -- the root (root.c) ---------------------------------------------------------------------------- */

void root_build(uint64_t scratch_bytes, uint64_t artifacts_bytes);
extern int processes; /* a /proc that hides no process of this sandbox from us */
/* `trees`: one for each grant, in their order; all are closed. 1 if /etc was replaced. */
int root_furnish(const struct request *, const int *trees);
/* The same for a root that an engine has mounted: nothing is mounted; each grant must be the judged file. */
void root_take_over(void);
void root_compare(const struct request *);
/* A descriptor (O_PATH) of a path inside the tool's root, through no link; -1 with errno. */
int find_inside(const char *path);
/* The path of a sealed input, or of a folder with layers, at which another file is visible by now; NULL
 * if there is none. */
const char *root_lost_seal(const struct request *);
/* Or `fail_errno`. Without a kind nothing new is mounted, but the existing mount gets these flags. */
void mount_at(const char *kind, const char *target, unsigned long flags, const char *options);

/* For image.c. */
void must(int result); /* or `fail_errno` */
int must_open(int folder, const char *path, int flags, mode_t mode);
int open_restricted(int folder, const char *path, uint64_t flags, uint64_t resolve);
int clone_tree(int descriptor);
void attach_onto(int tree, int target);
void copy_file(int folder, const char *name, const char *target);
extern const char *const SYSTEM_NAMES[]; /* ends with NULL */

/* -- an image as the root (image.c) ------------------------------------------------------------------- */

/* Removes the host's system directories from the root, and leaves our own files in an empty /etc. */
void image_replace_host(int tree);
/* Once the mount points of all grants are made: mounts what the image has, and permits to read it. */
void image_attach(const struct request *, int tree);

/* -- covers that the host can detach (covers.c) ----------------------------------------------------- */

void covers_watch(const struct request *); /* once the root is complete and the tool waits for its start */
extern int cover_events; /* POLLPRI when a mount is detached; -1 if there is nothing to watch */
int covers_are_due(void);              /* whether it is time for a check */
int covers_lost(void);                 /* checks each; how many were lost since `covers_watch` */
void put_lost_covers(struct text *);   /* as numbers: those of `protect`, then those of `deny` */

/* -- /proc (proc.c) ------------------------------------------------------------------------------- */

void proc_mount(const char *proc); /* while the template's /proc is still visible */

/* -- the network (net.c) -------------------------------------------------------------------------- */

void network_up(void);
void open_doors(const struct request *);             /* reports "listening" and "resolver" */
int listener_at(const char *address, uint16_t port); /* -1 with errno */
int64_t attempts_without_route(void);

/* -- while the tool runs (supervise.c, tasks.c) ---------------------------------------------------- */

void supervise_prepare(void); /* before there is a request: SIGCHLD, the artifacts */
_Noreturn void supervise(const struct request *); /* "ready" with the artifacts … "ended" */

enum { PERIOD_MS = 100 };   /* interval of the init's own checks */
enum { MAX_SURPLUS = 256 }; /* children over the limit, at most one per thread */
int64_t monotonic_ns(void);
void tasks_begin(uint64_t max_children, int limit);
int tasks_are_told_apart(void); /* whether threads are not counted as children */
int tasks_may_thread(pid_t asker); /* raises the limit for one more thread, unless the ceiling is reached */
int tasks_are_due(void);
/* Lowers the limit for threads that have ended; returns the children over the limit, and their number. */
int tasks_settle(pid_t *surplus);

#endif
