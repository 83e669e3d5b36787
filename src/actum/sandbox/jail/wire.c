/* Messages of the inner part: packets with descriptors, the request read in place, reports as JSON.
 *
 * wire.py packs a request: integers of 64 bits, little endian; a text as its length (32 bits), its bytes
 * and a NUL; a list as its length and its items; fields in one fixed order. The host writes it, but the
 * reader does not trust it: every length is compared with the rest of the packet, every text is checked
 * for NULs inside, and nothing may follow the last field.
 */
#include "jail.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

/* As in wire.py. */
enum { INLINE = 'J', IN_FILE = 'F', LISTEN = 'L' };

/* -- packets -------------------------------------------------------------------------------------- */

ssize_t receive(int channel, void *room, size_t size, int *descriptors, int *count)
{
    union {
        char room[CMSG_SPACE(MAX_PASSED * sizeof(int))];
        struct cmsghdr aligned;
    } control;
    struct iovec part = {.iov_base = room, .iov_len = size};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1,
                             .msg_control = control.room, .msg_controllen = sizeof control.room};
    ssize_t length;
    *count = 0;
    do /* close-on-exec: otherwise the tool would inherit them */
        length = recvmsg(channel, &message, MSG_CMSG_CLOEXEC);
    while (length < 0 && errno == EINTR);
    if (length < 0)
        return -1;
    for (struct cmsghdr *each = CMSG_FIRSTHDR(&message); each; each = CMSG_NXTHDR(&message, each)) {
        if (each->cmsg_level != SOL_SOCKET || each->cmsg_type != SCM_RIGHTS)
            continue;
        size_t here = (each->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t at = 0; at < here && *count < MAX_PASSED; at++)
            memcpy(&descriptors[(*count)++], CMSG_DATA(each) + at * sizeof(int), sizeof(int));
    }
    if (message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) {
        errno = EMSGSIZE;
        return -1;
    }
    return length;
}

void keep_back(int yes)
{
    enum { OTHER = 0, BATCH = 3 };
    int priority = 0;
    syscall(SYS_sched_setscheduler, 0, yes ? BATCH : OTHER, &priority);
}

void heard(int bell)
{
    uint64_t rings;
    while (read(bell, &rings, sizeof rings) < 0)
        if (errno != EINTR)
            _exit(1);
}

int pass(int channel, const void *packet, size_t size, const int *descriptors, int count)
{
    union {
        char room[CMSG_SPACE(MAX_PASSED * sizeof(int))];
        struct cmsghdr aligned;
    } control;
    struct iovec part = {.iov_base = (void *)packet, .iov_len = size};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    if (count < 0 || count > MAX_PASSED) {
        errno = EINVAL;
        return -1;
    }
    if (count) {
        size_t bytes = (size_t)count * sizeof(int);
        memset(&control, 0, sizeof control);
        message.msg_control = control.room;
        message.msg_controllen = CMSG_SPACE(bytes);
        struct cmsghdr *rights = CMSG_FIRSTHDR(&message);
        rights->cmsg_level = SOL_SOCKET;
        rights->cmsg_type = SCM_RIGHTS;
        rights->cmsg_len = CMSG_LEN(bytes);
        memcpy(CMSG_DATA(rights), descriptors, bytes);
    }
    ssize_t sent;
    do /* no SIGPIPE: pid 1 has no handler for it, but the tool's process would die silently */
        sent = sendmsg(channel, &message, MSG_NOSIGNAL);
    while (sent < 0 && errno == EINTR);
    return sent < 0 ? -1 : 0;
}

/* -- the request ---------------------------------------------------------------------------------- */

struct reader {
    const unsigned char *at, *end;
    unsigned char *free, *free_end; /* memory for the lists */
};

static _Noreturn void malformed(const char *what)
{
    fail("SANDBOX_UNAVAILABLE", "the request cannot be read: %s", what);
}

static const unsigned char *take(struct reader *reader, size_t size)
{
    if (size > (size_t)(reader->end - reader->at))
        malformed("it ends too early");
    const unsigned char *taken = reader->at;
    reader->at += size;
    return taken;
}

static uint64_t number(struct reader *reader)
{
    uint64_t value;
    memcpy(&value, take(reader, sizeof value), sizeof value);
    return value;
}

static uint32_t length(struct reader *reader)
{
    uint32_t value;
    memcpy(&value, take(reader, sizeof value), sizeof value);
    return value;
}

static const unsigned char *bytes(struct reader *reader, uint32_t *size)
{
    *size = length(reader);
    const unsigned char *taken = take(reader, (size_t)*size + 1);
    if (taken[*size] != 0)
        malformed("a text without an end");
    return taken;
}

static const char *string(struct reader *reader)
{
    uint32_t size;
    const unsigned char *taken = bytes(reader, &size);
    if (memchr(taken, 0, size))
        malformed("a text with a NUL");
    return (const char *)taken;
}

/* Memory for `count` items (and one more, for an end). An item takes at least five bytes of the packet, and
 * more if it is more than a pointer, so an impossible count is refused before it is used. */
static void *list(struct reader *reader, uint32_t count, size_t item)
{
    if (count > (size_t)(reader->end - reader->at) / 5)
        malformed("a list that is longer than all of it");
    size_t size = ((size_t)count + 1) * item;
    if (size > (size_t)(reader->free_end - reader->free))
        malformed("too many items");
    void *room = reader->free;
    reader->free += size;
    return room;
}

static const char *const *strings(struct reader *reader, uint32_t *count)
{
    *count = length(reader);
    const char **items = list(reader, *count, sizeof *items);
    for (uint32_t at = 0; at < *count; at++)
        items[at] = string(reader);
    items[*count] = NULL;
    return items;
}

static const struct grant *grants(struct reader *reader, uint32_t *count)
{
    *count = length(reader);
    struct grant *items = list(reader, *count, sizeof *items);
    for (uint32_t at = 0; at < *count; at++) {
        items[at].path = string(reader);
        uint64_t rights = number(reader);
        items[at].write = rights == 1;
        items[at].tried = rights == 2;
        items[at].device = number(reader);
        items[at].inode = number(reader);
        items[at].layers = string(reader);
        items[at].source = string(reader);
    }
    return items;
}

static const struct pair *pairs(struct reader *reader, uint32_t *count)
{
    *count = length(reader);
    struct pair *items = list(reader, *count, sizeof *items);
    for (uint32_t at = 0; at < *count; at++) {
        items[at].name = string(reader);
        items[at].text = string(reader);
    }
    return items;
}

static uint16_t port(struct reader *reader)
{
    uint64_t value = number(reader);
    if (value > UINT16_MAX)
        malformed("a port that is none");
    return (uint16_t)value;
}

static const struct door *doors(struct reader *reader, uint32_t *count)
{
    *count = length(reader);
    struct door *items = list(reader, *count, sizeof *items);
    for (uint32_t at = 0; at < *count; at++) {
        items[at].address = string(reader);
        items[at].port = port(reader);
    }
    return items;
}

static const struct file *files(struct reader *reader, uint32_t *count, int named)
{
    *count = length(reader);
    struct file *items = list(reader, *count, sizeof *items);
    for (uint32_t at = 0; at < *count; at++) {
        items[at].name = named ? string(reader) : NULL;
        items[at].content = bytes(reader, &items[at].size);
    }
    return items;
}

static const struct request *read_request(const unsigned char *packet, size_t size)
{
    static struct request request;
    /* No item takes more than five times its bytes in the packet, plus the ends of the lists. */
    static _Alignas(16) unsigned char room[5 * MAX_INLINE + 4096];
    struct reader reader = {packet, packet + size, room, room + sizeof room};
    uint32_t count;
    if (size > MAX_INLINE) {
        size_t wanted = 5 * size + 4096;
        reader.free = mmap(NULL, wanted, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (reader.free == MAP_FAILED)
            fail_errno("mmap");
        reader.free_end = reader.free + wanted;
    }
    request.argv = strings(&reader, &count);
    if (count == 0)
        malformed("no program");
    request.environment = strings(&reader, &count);
    request.executable = string(&reader);
    request.executable_device = number(&reader);
    request.executable_inode = number(&reader);
    request.working_directory = string(&reader);
    request.secrets = files(&reader, &request.secrets_count, 0);
    request.grants = grants(&reader, &request.grants_count);
    request.protect = strings(&reader, &request.protect_count);
    request.deny = strings(&reader, &request.deny_count);
    request.limits = strings(&reader, &request.limits_count);
    request.scratch_bytes = number(&reader);
    request.artifacts_bytes = number(&reader);
    request.max_children = number(&reader);
    request.etc = pairs(&reader, &request.etc_count);
    request.addresses = strings(&reader, &request.addresses_count);
    request.listen = doors(&reader, &request.listen_count);
    request.provided = files(&reader, &request.provided_count, 1);
    request.resolver = string(&reader);
    if (reader.at != reader.end)
        malformed("something follows it");
    return &request;
}

const struct request *open_request(const unsigned char *packet, size_t size, const int *descriptors,
                                   int count, int *others)
{
    struct stat found;
    *others = 0;
    if (size >= 1 && packet[0] == INLINE)
        return read_request(packet + 1, size - 1);
    if (size != 1 || packet[0] != IN_FILE || count < 1)
        malformed("it is neither here nor in a file");
    *others = 1;
    if (fstat(descriptors[0], &found) < 0)
        fail_errno(NULL);
    void *content = mmap(NULL, (size_t)found.st_size, PROT_READ, MAP_PRIVATE, descriptors[0], 0);
    if (content == MAP_FAILED)
        fail_errno("mmap");
    close(descriptors[0]);
    return read_request(content, (size_t)found.st_size);
}

/* The only request of this size that is read repeatedly. */
static void *openings_room;
static size_t openings_size;

void close_openings(void)
{
    if (openings_room)
        munmap(openings_room, openings_size);
    openings_room = NULL;
}

static const struct openings *read_openings(struct reader *reader)
{
    static struct openings openings;
    openings.owner_uid = number(reader);
    openings.owner_gid = number(reader);
    openings.grants = grants(reader, &openings.grants_count);
    if (reader->at != reader->end)
        malformed("something follows it");
    return &openings;
}

const struct openings *open_openings(const unsigned char *packet, size_t size, const int *descriptors,
                                     int count, int *others)
{
    static _Alignas(16) unsigned char room[5 * MAX_INLINE + 4096];
    struct stat found;
    *others = 0;
    if (size >= 1 && packet[0] == INLINE) {
        struct reader inside = {packet + 1, packet + size, room, room + sizeof room};
        return read_openings(&inside);
    }
    if (size != 1 || packet[0] != IN_FILE || count < 1 || fstat(descriptors[0], &found) < 0)
        malformed("it is neither here nor in a file");
    *others = 1;
    /* The content, and after it memory for the lists, aligned for any type. */
    size_t content = (size_t)found.st_size, lists = (content + 15) / 16 * 16;
    openings_size = lists + 5 * content + 4096;
    openings_room = mmap(NULL, openings_size, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (openings_room == MAP_FAILED || pread(descriptors[0], openings_room, content, 0) != (ssize_t)content)
        fail_errno("a large request");
    close(descriptors[0]);
    unsigned char *start = openings_room;
    struct reader reader = {start, start + content, start + lists, start + openings_size};
    return read_openings(&reader);
}

const struct order *read_order(const unsigned char *packet, size_t size)
{
    static struct order order;
    static _Alignas(16) unsigned char room[64 * sizeof(char *)];
    struct reader reader = {packet + 1, packet + size, room, room + sizeof room};
    if (size < 1 || packet[0] != MAKE)
        malformed("no order");
    order.allow_fork = number(&reader) != 0;
    order.steady = number(&reader) != 0;
    order.interpreter = number(&reader) != 0;
    order.scratch_bytes = number(&reader);
    order.limits = strings(&reader, &order.limits_count);
    if (reader.at != reader.end)
        malformed("something follows it");
    return &order;
}

const char *read_listen_order(const unsigned char *packet, size_t size, uint16_t *ports, int most, int *count)
{
    if (size < 1 || packet[0] != LISTEN)
        return NULL;
    struct reader reader = {.at = packet + 1, .end = packet + size};
    const char *address = string(&reader);
    uint32_t wanted = length(&reader);
    if (wanted > (uint32_t)most)
        malformed("too many ports");
    for (*count = 0; *count < (int)wanted; ++*count)
        ports[*count] = port(&reader);
    if (reader.at != reader.end)
        malformed("something follows it");
    return address;
}

/* -- reports -------------------------------------------------------------------------------------- */

static void add(struct text *text, const char *bytes, size_t size)
{
    if (size > sizeof text->room - text->length)
        _exit(1);
    memcpy(text->room + text->length, bytes, size);
    text->length += size;
}

void put(struct text *text, const char *raw)
{
    add(text, raw, strlen(raw));
}

static void put_escaped(struct text *text, unsigned value)
{
    static const char digits[] = "0123456789abcdef";
    char escape[6] = {'\\', 'u', digits[value >> 12 & 15], digits[value >> 8 & 15],
                      digits[value >> 4 & 15], digits[value & 15]};
    add(text, escape, sizeof escape);
}

/* The length of the UTF-8 character at this position; 0 if it is none. */
static size_t character(const unsigned char *at, size_t left)
{
    size_t more = *at < 0xC2 ? 0 : *at < 0xE0 ? 1 : *at < 0xF0 ? 2 : *at < 0xF5 ? 3 : 0;
    if (more == 0 || more >= left)
        return 0;
    for (size_t index = 1; index <= more; index++)
        if ((at[index] & 0xC0) != 0x80)
            return 0;
    if ((*at == 0xE0 && at[1] < 0xA0) || (*at == 0xED && at[1] > 0x9F) || /* overlong; surrogates */
        (*at == 0xF0 && at[1] < 0x90) || (*at == 0xF4 && at[1] > 0x8F))   /* above U+10FFFF */
        return 0;
    return more + 1;
}

void put_string(struct text *text, const char *string, size_t size)
{
    const unsigned char *at = (const unsigned char *)string, *end = at + size;
    put(text, "\"");
    while (at < end) {
        if (*at == '"' || *at == '\\') {
            char escape[2] = {'\\', (char)*at++};
            add(text, escape, sizeof escape);
        } else if (*at < 0x20) {
            put_escaped(text, *at++);
        } else if (*at < 0x80) {
            add(text, (const char *)at++, 1);
        } else {
            size_t taken = character(at, (size_t)(end - at));
            if (taken) {
                add(text, (const char *)at, taken);
                at += taken;
            } else {
                put_escaped(text, 0xDC00u | *at++); /* as Python's surrogateescape */
            }
        }
    }
    put(text, "\"");
}

void put_words(struct text *text, const char *words)
{
    put_string(text, words, strlen(words));
}

void put_number(struct text *text, int64_t value)
{
    char digits[24];
    char *at = digits + sizeof digits;
    uint64_t left = value < 0 ? -(uint64_t)value : (uint64_t)value;
    do
        *--at = (char)('0' + left % 10);
    while ((left /= 10) > 0);
    if (value < 0)
        *--at = '-';
    add(text, at, (size_t)(digits + sizeof digits - at));
}

void report(const struct text *text, const int *descriptors, int count)
{
    if (pass(member.control, text->room, text->length, descriptors, count) < 0)
        _exit(1); /* the host is gone, and the tree dies with us */
}
