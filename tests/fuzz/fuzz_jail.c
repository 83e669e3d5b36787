/* The parsers of sandbox/jail under libFuzzer: a request (wire.c), the addresses in it (net.c), the orders to
 * the spawner (serve.c) and to the opener (opener.c), the words that an init is started with (words.c), and
 * the files of /proc that the init reads (tasks.c).
 *
 * An input is: what is parsed (one letter), which system call fails (0 for none) and with which errno,
 * then sections of a length (16 bits), a number of descriptors (8 bits) and bytes. test_jail_parsers.py
 * makes the first inputs with the host's own encoder.
 *
 * Beside the sanitizers these hold: an accepted packet, written again from what was read, is the same
 * packet. With JAIL_EXPECTS=accepted or refused, every input must be that. Nothing is closed twice, sent
 * after it was closed, or still open when the next order is awaited. No mount is left behind. The spawner
 * removes no group of a member that the host has got. A list never holds more than its array.
 */
#include "jail.h"

#include <arpa/inet.h>
#include <errno.h>
#include <setjmp.h>
#include <stdio.h>
#include <string.h>

/* Their static state is reset between inputs. */
#include "opener.c"
#include "serve.c"
#include "tasks.c"

#undef free
#undef calloc

enum { FIRST_DESCRIPTOR = 1 << 20, DESCRIPTORS = 1 << 14, MAX_WORDS = 4096, LONGEST = 1 << 17 };
enum { MAX_MAPPED = 16, MAX_SECTIONS = 64, MAX_PROCESSES = 1024 };
enum { DEVICE = 7, INODE = 8 }; /* of every file */
enum state { CLOSED, OPEN, KEPT };

struct section { const unsigned char *at; size_t size; int descriptors; };
struct process { pid_t pid; unsigned links; struct section status; };

struct member member;
int processes = 3;

static struct section sections[MAX_SECTIONS];
static int section_count, next_section;
static struct section file; /* what the file that came along holds, and what netlink answers */
static unsigned fails_at, fails_with, calls;
static enum state descriptors_state[DESCRIPTORS];
static int next_descriptor;
static void *mapped[MAX_MAPPED];
static int mapped_count, mounts, groups, zygote_was_asked;
static struct process listed[MAX_PROCESSES];
static int listed_count, next_listed, opened_process;
static jmp_buf ended;

static _Noreturn void wrong(const char *what)
{
    fprintf(stderr, "violated: %s\n", what);
    abort();
}

/* -- what the parsers call of us -------------------------------------------------------------------- */

_Noreturn void fake_exit(int code)
{
    longjmp(ended, code ? code : 1);
}

_Noreturn void fail(const char *reason, const char *format, ...)
{
    (void)reason, (void)format;
    longjmp(ended, 1);
}

_Noreturn void fail_errno(const char *what, ...)
{
    (void)what;
    longjmp(ended, 1);
}

_Noreturn void be_init(void)
{
    wrong("a clone that was not made");
}

const char *error_text(int number)
{
    return number ? "an error" : "no error";
}

/* -- the kernel ------------------------------------------------------------------------------------- */

int fake_succeeds(void)
{
    if (++calls != fails_at)
        return 0;
    errno = (int)fails_with;
    return -1;
}

int fake_descriptor(void)
{
    if (fake_succeeds() < 0)
        return -1;
    while (next_descriptor < DESCRIPTORS && descriptors_state[next_descriptor] != CLOSED)
        next_descriptor++;
    if (next_descriptor == DESCRIPTORS) {
        errno = EMFILE;
        return -1;
    }
    descriptors_state[next_descriptor] = OPEN;
    return FIRST_DESCRIPTOR + next_descriptor++;
}

static enum state *state_of(int descriptor)
{
    int at = descriptor - FIRST_DESCRIPTOR;
    return at < 0 || at >= DESCRIPTORS ? NULL : &descriptors_state[at];
}

static void require_open(int descriptor)
{
    enum state *state = state_of(descriptor);
    if (state && *state == CLOSED)
        wrong("use of a closed descriptor");
}

static void require_all_closed(void)
{
    for (int at = 0; at < next_descriptor; at++)
        if (descriptors_state[at] == OPEN)
            wrong("an open descriptor is left behind");
    if (mounts)
        wrong("a mount is left behind");
}

int fake_descriptors(int ends[2])
{
    int first = fake_descriptor(), second;
    if (first < 0)
        return -1;
    if ((second = fake_descriptor()) < 0) {
        *state_of(first) = CLOSED;
        return -1;
    }
    ends[0] = first;
    ends[1] = second;
    return 0;
}

int fake_close(int descriptor)
{
    require_open(descriptor);
    if (state_of(descriptor))
        *state_of(descriptor) = CLOSED;
    return 0;
}

/* The opener opens one thing by a path: a user namespace, which it keeps for later orders. */
int fake_open(const char *path, int flags)
{
    (void)flags;
    int made = fake_descriptor();
    if (made >= 0 && strstr(path, "/ns/user"))
        *state_of(made) = KEPT;
    return made;
}

int fake_openat(int folder, const char *path, int flags)
{
    (void)folder, (void)flags;
    opened_process = -1;
    for (int at = 0; at < listed_count; at++)
        if (listed[at].pid == atoi(path))
            opened_process = at;
    return fake_descriptor();
}

static ssize_t copied(const struct section *from, void *room, size_t size)
{
    size_t most = from->size < size ? from->size : size;
    if (most)
        memcpy(room, from->at, most);
    return (ssize_t)most;
}

ssize_t fake_read(int descriptor, void *room, size_t size)
{
    require_open(descriptor);
    if (fake_succeeds() < 0)
        return -1;
    return copied(opened_process < 0 ? &file : &listed[opened_process].status, room, size);
}

ssize_t fake_pread(int descriptor, void *room, size_t size, off_t offset)
{
    require_open(descriptor);
    (void)offset;
    return fake_succeeds() < 0 ? -1 : copied(&file, room, size);
}

ssize_t fake_write(int descriptor, const void *bytes, size_t size)
{
    require_open(descriptor);
    volatile unsigned char last; /* every byte is read, so that the sanitizers see it */
    for (size_t at = 0; at < size; at++)
        last = ((const unsigned char *)bytes)[at];
    (void)last;
    return fake_succeeds() < 0 ? -1 : (ssize_t)size;
}

ssize_t fake_pwrite(int descriptor, const void *bytes, size_t size, off_t offset)
{
    (void)offset;
    return fake_write(descriptor, bytes, size);
}

int fake_fstat(int descriptor, struct stat *found)
{
    require_open(descriptor);
    memset(found, 0, sizeof *found);
    found->st_dev = DEVICE;
    found->st_ino = INODE;
    found->st_size = (off_t)file.size;
    return fake_succeeds();
}

int fake_fstatat(int folder, const char *path, struct stat *found, int flags)
{
    (void)folder, (void)flags;
    memset(found, 0, sizeof *found);
    for (int at = 0; at < listed_count; at++)
        if (listed[at].pid == atoi(path))
            found->st_nlink = listed[at].links;
    return fake_succeeds();
}

static int folder;

DIR *fake_fdopendir(int descriptor)
{
    if (fake_succeeds() < 0)
        return NULL;
    folder = descriptor;
    next_listed = 0;
    return (DIR *)&folder;
}

struct dirent *fake_readdir(DIR *which)
{
    static struct dirent entry;
    (void)which;
    if (next_listed == listed_count)
        return NULL;
    snprintf(entry.d_name, sizeof entry.d_name, "%d", listed[next_listed++].pid);
    return &entry;
}

int fake_closedir(DIR *which)
{
    (void)which;
    return fake_close(folder);
}

/* Memory of its own that ends where the content ends. */
static void *remembered(void *room)
{
    if (!room || mapped_count == MAX_MAPPED)
        wrong("no memory");
    return mapped[mapped_count++] = room;
}

void *fake_mmap(void *where, size_t size, int protection, int flags, int descriptor, off_t offset)
{
    (void)where, (void)protection, (void)descriptor, (void)offset;
    if (size == 0)
        errno = EINVAL;
    if (size == 0 || fake_succeeds() < 0)
        return MAP_FAILED;
    void *room = remembered(calloc(1, size));
    if (!(flags & MAP_ANONYMOUS))
        copied(&file, room, size);
    return room;
}

void *fake_calloc(size_t count, size_t size)
{
    return fake_succeeds() < 0 ? NULL : remembered(calloc(count, size));
}

void fake_free(void *room)
{
    for (int at = 0; room && at < mapped_count; at++)
        if (mapped[at] == room) {
            mapped[at] = mapped[--mapped_count];
            free(room);
            return;
        }
    if (room)
        wrong("memory that is not there is given back");
}

int fake_munmap(void *room, size_t size)
{
    (void)size;
    if (room == MAP_FAILED) /* as the kernel does */
        return -1;
    fake_free(room);
    return 0;
}

/* -- the other side of the sockets -------------------------------------------------------------------- */

ssize_t fake_recvmsg(int channel, struct msghdr *message, int flags)
{
    (void)channel, (void)flags;
    if (!zygote_was_asked)
        require_all_closed();
    zygote_was_asked = 0;
    if (fake_succeeds() < 0)
        return -1;
    if (next_section == section_count)
        return 0;
    const struct section *packet = &sections[next_section++];
    int came = packet->descriptors < MAX_PASSED ? packet->descriptors : MAX_PASSED;
    message->msg_flags = packet->size > message->msg_iov->iov_len ? MSG_TRUNC : 0;
    struct cmsghdr *rights = CMSG_FIRSTHDR(message);
    message->msg_controllen = came ? CMSG_SPACE((size_t)came * sizeof(int)) : 0;
    if (came) {
        rights->cmsg_level = SOL_SOCKET;
        rights->cmsg_type = SCM_RIGHTS;
        rights->cmsg_len = CMSG_LEN((size_t)came * sizeof(int));
    }
    for (int at = 0; at < came; at++) {
        int made = fake_descriptor();
        memcpy(CMSG_DATA(rights) + (size_t)at * sizeof made, &made, sizeof made);
        if (made < 0)
            fake_exit(1); /* the kernel would say MSG_CTRUNC */
    }
    return copied(packet, message->msg_iov->iov_base, message->msg_iov->iov_len);
}

ssize_t fake_sendmsg(int channel, const struct msghdr *message, int flags)
{
    (void)channel, (void)flags;
    struct cmsghdr *rights = message->msg_controllen ? CMSG_FIRSTHDR(message) : NULL;
    size_t count = rights ? (rights->cmsg_len - CMSG_LEN(0)) / sizeof(int) : 0;
    for (size_t at = 0; at < count; at++) {
        int sent;
        memcpy(&sent, CMSG_DATA(rights) + at * sizeof sent, sizeof sent);
        require_open(sent);
    }
    const struct iovec *part = message->msg_iov;
    if (part->iov_len > MAX_PACKET || count > MAX_PASSED)
        wrong("a packet that is too large");
    zygote_was_asked = part->iov_len > 1 && *(const char *)part->iov_base == MAKE;
    ssize_t sent = fake_write(channel, part->iov_base, part->iov_len);
    if (sent > 0 && count && *(const char *)part->iov_base == '{') /* to the host */
        groups = 0;
    return sent;
}

int fake_socket(int family, int kind, int protocol)
{
    (void)family, (void)kind, (void)protocol;
    return fake_descriptor();
}

int fake_setsockopt(int channel, int level, int name, const void *value, socklen_t size)
{
    (void)level, (void)name;
    return fake_write(channel, value, size) < 0 ? -1 : 0;
}

int fake_bind(int channel, const struct sockaddr *address, socklen_t size)
{
    return fake_write(channel, address, size) < 0 ? -1 : 0;
}

/* To netlink: one message, as long as it says. */
ssize_t fake_send(int channel, const void *bytes, size_t size, int flags)
{
    uint32_t length;
    (void)flags;
    memcpy(&length, bytes, sizeof length);
    if (length != size)
        wrong("a netlink message of another length");
    return fake_write(channel, bytes, size);
}

ssize_t fake_recv(int channel, void *room, size_t size, int flags)
{
    require_open(channel);
    (void)flags;
    return fake_succeeds() < 0 ? -1 : copied(&file, room, size);
}

/* The spawner awaits an order; the opener looks whether the spawner is alive. */
int fake_poll(struct pollfd *watched, nfds_t count, int wait_ms)
{
    (void)wait_ms;
    if (fake_succeeds() < 0)
        return -1;
    for (nfds_t at = 0; at < count; at++)
        watched[at].revents = 0;
    return count == 2;
}

int fake_umount(void)
{
    if (fake_succeeds() < 0)
        return -1;
    mounts--;
    return 0;
}

/* Control groups: made by the spawner, and the host's once it has got the member (fake_sendmsg). */
int fake_mkdirat(void)
{
    if (fake_succeeds() < 0)
        return -1;
    groups++;
    return 0;
}

int fake_unlinkat(void)
{
    if (groups == 0)
        wrong("a group of another member is removed");
    groups--;
    return fake_succeeds();
}

long fake_syscall(long number, ...)
{
    enum { WITH_PIDFD = 0x1000, PID = 4242 };
    va_list arguments;
    int *pidfd;
    switch (number) {
    case SYS_clone:
        va_start(arguments, number);
        unsigned flags = va_arg(arguments, unsigned);
        (void)va_arg(arguments, void *);
        pidfd = va_arg(arguments, int *);
        va_end(arguments);
        if (flags & WITH_PIDFD && (*pidfd = fake_descriptor()) < 0)
            return -1;
        return flags & WITH_PIDFD ? PID : fake_succeeds() < 0 ? -1 : PID;
    case SYS_openat2:
    case SYS_open_tree:
    case SYS_fsopen:
    case SYS_fsmount:
        return fake_descriptor();
    case SYS_pidfd_open: { /* held to the end */
        int made = fake_descriptor();
        if (made >= 0)
            *state_of(made) = KEPT;
        return made;
    }
    case SYS_move_mount:
        if (fake_succeeds() < 0)
            return -1;
        mounts++;
        return 0;
    default:
        return fake_succeeds();
    }
}

/* -- writing again what was read ---------------------------------------------------------------------- */

static unsigned char again[2 * LONGEST];
static size_t again_size;

static void put_bytes(const void *bytes, size_t size)
{
    if (size > sizeof again - again_size)
        wrong("more was read than there is");
    if (size)
        memcpy(again + again_size, bytes, size);
    again_size += size;
}

static void put_length(size_t size)
{
    uint32_t value = (uint32_t)size;
    put_bytes(&value, sizeof value);
}

static void put_long(uint64_t value)
{
    put_bytes(&value, sizeof value);
}

static void put_content(const void *content, size_t size)
{
    put_length(size);
    put_bytes(content, size);
    put_bytes("", 1);
}

static void put_line(const char *text)
{
    put_content(text, strlen(text));
}

static void put_lines(const char *const *lines, size_t count)
{
    put_length(count);
    for (size_t at = 0; at < count; at++)
        put_line(lines[at]);
}

static size_t count_of(const char *const *lines)
{
    size_t count = 0;
    while (lines[count])
        count++;
    return count;
}

/* Any number but 0 means yes: the number of the packet is written again, if it means the same. */
static void put_yes(int yes, const unsigned char *packet)
{
    uint64_t stood;
    memcpy(&stood, packet + again_size, sizeof stood);
    if ((stood != 0) != (yes != 0))
        wrong("a yes was read as a no");
    put_long(stood);
}

/* 1 is the right to write, 2 a trial, and every other number neither. */
static void put_right(const struct grant *grant, const unsigned char *packet)
{
    uint64_t stood;
    memcpy(&stood, packet + again_size, sizeof stood);
    if ((stood == 1) != grant->write || (stood == 2) != grant->tried)
        wrong("a right was read as another");
    put_long(stood);
}

static void put_grants(const struct grant *grants, uint32_t count, const unsigned char *packet)
{
    put_length(count);
    for (uint32_t at = 0; at < count; at++) {
        put_line(grants[at].path);
        put_right(&grants[at], packet);
        put_long(grants[at].device);
        put_long(grants[at].inode);
        put_line(grants[at].layers);
        put_line(grants[at].source);
    }
}

static void put_files(const struct file *files, uint32_t count, int named)
{
    put_length(count);
    for (uint32_t at = 0; at < count; at++) {
        if (named)
            put_line(files[at].name);
        put_content(files[at].content, files[at].size);
    }
}

static void put_request(const struct request *request, const unsigned char *packet)
{
    put_lines(request->argv, count_of(request->argv));
    put_lines(request->environment, count_of(request->environment));
    put_line(request->executable);
    put_long(request->executable_device);
    put_long(request->executable_inode);
    put_line(request->working_directory);
    put_files(request->secrets, request->secrets_count, 0);
    put_grants(request->grants, request->grants_count, packet);
    put_lines(request->protect, request->protect_count);
    put_lines(request->deny, request->deny_count);
    put_lines(request->limits, request->limits_count);
    put_long(request->scratch_bytes);
    put_long(request->artifacts_bytes);
    put_long(request->max_children);
    put_length(request->etc_count);
    for (uint32_t at = 0; at < request->etc_count; at++) {
        put_line(request->etc[at].name);
        put_line(request->etc[at].text);
    }
    put_lines(request->addresses, request->addresses_count);
    put_length(request->listen_count);
    for (uint32_t at = 0; at < request->listen_count; at++) {
        put_line(request->listen[at].address);
        put_long(request->listen[at].port);
    }
    put_files(request->provided, request->provided_count, 1);
    put_line(request->resolver);
}

static void require_same(const unsigned char *packet, size_t size)
{
    if (again_size != size || memcmp(again, packet, size))
        wrong("it was read as something else");
}

/* -- what is parsed ------------------------------------------------------------------------------------ */

/* In memory of its own, exactly as long: a read one byte beyond is reported. */
static unsigned char *alone(const struct section *section)
{
    unsigned char *packet = remembered(malloc(section->size ? section->size : 1));
    copied(section, packet, section->size);
    return packet;
}

/* The packet with what it announces, which is in it or in the file. */
struct received { unsigned char *packet; size_t size; const unsigned char *body; size_t body_size; int file; };

static struct received received(void)
{
    struct section *first = &sections[0];
    struct received got = {alone(first), first->size, NULL, 0, -1};
    int is_inline = first->size > 0 && got.packet[0] == 'J';
    got.body = is_inline ? got.packet + 1 : file.at;
    got.body_size = is_inline ? first->size - 1 : file.size;
    if (first->descriptors)
        got.file = fake_descriptor();
    return got;
}

static void parse_request(void)
{
    int others;
    struct received got = received();
    const struct request *request =
        open_request(got.packet, got.size, &got.file, got.file >= 0, &others);
    put_request(request, got.body);
    require_same(got.body, got.body_size);
    if (!others && got.file >= 0)
        fake_close(got.file);
    open_doors(request);
    require_all_closed();
}

static void parse_openings(void)
{
    int others;
    struct received got = received();
    const struct openings *found =
        open_openings(got.packet, got.size, &got.file, got.file >= 0, &others);
    put_long(found->owner_uid);
    put_long(found->owner_gid);
    put_grants(found->grants, found->grants_count, got.body);
    require_same(got.body, got.body_size);
}

static void parse_order(void)
{
    unsigned char *packet = alone(&sections[0]);
    const struct order *order = read_order(packet, sections[0].size);
    put_bytes("M", 1);
    put_yes(order->allow_fork, packet);
    put_yes(order->steady, packet);
    put_yes(order->interpreter, packet);
    put_long(order->scratch_bytes);
    put_lines(order->limits, order->limits_count);
    require_same(packet, sections[0].size);
}

static void parse_ports(void)
{
    uint16_t ports[MAX_PASSED];
    int count;
    unsigned char *packet = alone(&sections[0]);
    const char *address = read_listen_order(packet, sections[0].size, ports, MAX_PASSED, &count);
    if (!address)
        return;
    put_bytes("L", 1);
    put_line(address);
    put_length((size_t)count);
    for (int at = 0; at < count; at++) {
        put_long(ports[at]);
        fake_close(listener_at(address, ports[at])); /* -1 is no descriptor of ours */
    }
    require_same(packet, sections[0].size);
    require_all_closed();
}

static char **words_of(const struct section *section)
{
    static char *words[MAX_WORDS + 1];
    int count = 0;
    char *text = remembered(calloc(1, section->size + 1));
    copied(section, text, section->size);
    for (char *word = text; word < text + section->size && count < MAX_WORDS; word += strlen(word) + 1) {
        /* No word names a descriptor that the fake kernel has yet to give out. */
        if (state_of((int)strtoll(word, NULL, 10)))
            fake_exit(1);
        words[count++] = word;
    }
    words[count] = NULL;
    return words;
}

static void require_count(int count, int most)
{
    if (count < 0 || count > most)
        wrong("more of something than there is room for");
}

static void parse_member(void)
{
    static char room[LONGEST];
    int passed, descriptors[MAX_PASSED];
    read_member(words_of(&sections[0]));
    require_count(member.door_count, MAX_DOORS);
    require_count(member.limit_count, MAX_LIMITS);
    require_count(member.usage_count, MAX_USAGE);
    require_count(member.folder_count, MAX_FOLDERS);
    write_member(room, sizeof room, descriptors, &passed);
    require_count(passed, MAX_PASSED);
}

/* The spawner from its start to the end of its orders. */
static void run_spawner(void)
{
    next_section = 1;
    serve(words_of(&sections[0]));
}

static void run_opener(void)
{
    static char *words[] = {"3", "4", "1000", "1000", NULL};
    next_section = 0;
    serve_openings(words);
}

/* Quoted, and with nothing inside that would end the string. */
static void parse_string(void)
{
    static struct text text;
    text.length = 0;
    put_string(&text, (char *)alone(&sections[0]), sections[0].size);
    if (text.length < 2 || text.room[0] != '"' || text.room[text.length - 1] != '"')
        wrong("a string without quotes");
    for (size_t at = 1; at < text.length - 1; at++) {
        if (text.room[at] == '\\' && ++at < text.length - 1)
            continue;
        if (text.room[at] == '"' || text.room[at] == '\\' || (unsigned char)text.room[at] < 0x20)
            wrong("a string that ends before its end");
    }
}

/* Each section is a process: its id, links of its folder of threads, and what its status says. */
static void parse_processes(void)
{
    pid_t surplus[MAX_SURPLUS];
    int alive = 0;
    for (listed_count = 0; listed_count < section_count; listed_count++) {
        struct section status = sections[listed_count];
        listed[listed_count] = (struct process){.pid = listed_count + 2, .links = (unsigned)status.descriptors,
                                                .status = status};
    }
    tasks_begin(fails_with % 8, 3);
    for (pid_t asker = 2; asker < 6; asker++)
        tasks_may_thread(asker);
    fails_at = 0;
    int count = tasks_settle(surplus);
    for (int at = 0; at < listed_count; at++)
        alive += started(listed[at].pid) >= 0;
    int most = alive - (int)tasks.processes;
    if (count != (most > 0 ? most : 0))
        wrong("another number of children is too many");
    for (int at = 0; at < count; at++)
        if (surplus[at] < 2 || surplus[at] >= listed_count + 2)
            wrong("a child that is not there is too many");
    require_all_closed();
}

static const struct { char letter; void (*parse)(void); } PARSED[] = {
    {'R', parse_request}, {'T', parse_openings}, {'M', parse_order},  {'L', parse_ports},
    {'W', parse_member},  {'V', run_spawner},    {'O', run_opener},   {'S', parse_string},
    {'P', parse_processes},
};

/* -- one input ------------------------------------------------------------------------------------------ */

static void begin(const unsigned char *at, const unsigned char *end)
{
    section_count = next_section = 0;
    while (end - at >= 3 && section_count < MAX_SECTIONS) {
        size_t size = at[0] | (size_t)at[1] << 8, left = (size_t)(end - at) - 3;
        size = size < left ? size : left;
        sections[section_count++] = (struct section){at + 3, size, at[2]};
        at += 3 + size;
    }
    if (section_count == 0)
        sections[section_count++] = (struct section){at, 0, 0};
    file = sections[section_count - 1];
    for (int each = 0; each < next_descriptor; each++)
        if (descriptors_state[each] == OPEN)
            descriptors_state[each] = CLOSED;
    next_descriptor = calls = 0;
    mounts = groups = zygote_was_asked = listed_count = held_count = 0;
    opened_process = -1;
    again_size = 0;
    memset(&member, 0, sizeof member);
    memset(&recipe, 0, sizeof recipe);
    memset(&tasks, 0, sizeof tasks);
}

static void end(void)
{
    close_openings();
    while (mapped_count)
        free(mapped[--mapped_count]);
    for (int at = 0; own > 0 && at < DESCRIPTORS; at++) /* the spawner's own pidfd; idmaps stay */
        if (FIRST_DESCRIPTOR + at == own)
            descriptors_state[at] = CLOSED;
    own = 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 3 || size > LONGEST)
        return -1; /* not worth keeping */
    begin(data + 3, data + size);
    fails_at = data[1];
    fails_with = data[2];
    static int accepted; /* static: it is set between setjmp and longjmp */
    accepted = 0;
    for (size_t at = 0; at < sizeof PARSED / sizeof *PARSED; at++)
        if (PARSED[at].letter == (char)data[0] && setjmp(ended) == 0) {
            PARSED[at].parse();
            accepted = 1;
        }
    end();
    const char *expected = getenv("JAIL_EXPECTS");
    if (expected && strcmp(expected, accepted ? "accepted" : "refused"))
        wrong(accepted ? "what is beyond a bound was accepted" : "what the host writes was refused");
    return 0;
}
