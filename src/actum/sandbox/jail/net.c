/* The network of one sandbox, from inside: a loopback of its own, and the doors.
 *
 * Doors are listening sockets, bound here and passed to the host, which accepts on them. There is no other
 * route.
 */
#include "jail.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

enum { BACKLOG = 1024, NAME_SERVICE = 53 };
enum { IPV6_FREELY_BOUND = 78 }; /* IPV6_FREEBIND */

/* Of rtnetlink. */
enum { NEW_ADDRESS = 20, REQUEST = 0x1, ACKNOWLEDGE = 0x4, EXCLUSIVE = 0x200, CREATE = 0x400 };
enum { ATTRIBUTE_ADDRESS = 1, ATTRIBUTE_LOCAL = 2, LOOPBACK_INDEX = 1 };

static int new_socket(int family, int kind)
{
    int made = socket(family, kind | SOCK_CLOEXEC, 0);
    if (made < 0)
        fail_errno(NULL);
    return made;
}

/* A private loopback, so that a tool's own servers work; there is no other route. */
void network_up(void)
{
    struct ifreq loopback = {.ifr_name = "lo"};
    int probe = new_socket(AF_INET, SOCK_DGRAM);
    if (ioctl(probe, SIOCGIFFLAGS, &loopback) < 0)
        fail_errno(NULL);
    loopback.ifr_flags |= IFF_UP;
    if (ioctl(probe, SIOCSIFFLAGS, &loopback) < 0)
        fail_errno(NULL);
    close(probe);
}

/* An address of either family in network form; its size, or 0 if it is invalid. */
static size_t packed(const char *text, int *family, unsigned char *bytes)
{
    *family = strchr(text, ':') ? AF_INET6 : AF_INET;
    if (inet_pton(*family, text, bytes) != 1)
        return 0;
    return *family == AF_INET6 ? sizeof(struct in6_addr) : sizeof(struct in_addr);
}

struct attribute {
    uint16_t length, kind;
    unsigned char value[sizeof(struct in6_addr)];
};

static size_t put_attribute(unsigned char *at, uint16_t kind, const unsigned char *value, size_t size)
{
    struct attribute attribute = {.length = (uint16_t)(4 + size), .kind = kind};
    memcpy(attribute.value, value, size);
    memcpy(at, &attribute, attribute.length); /* 8 or 20 bytes: a whole number of words */
    return attribute.length;
}

struct address_order {
    struct {
        uint32_t length;
        uint16_t kind, flags;
        uint32_t sequence, port;
    } header;
    struct {
        uint8_t family, prefix, flags, scope;
        uint32_t index;
    } address;
    unsigned char attributes[2 * sizeof(struct attribute)];
};

/* Puts an address such as 198.18.0.1/15 on lo; everything in its network becomes local.
 *
 * An address and not a bare route: with only a route, libc concludes that there is no network and refuses
 * to look names up. */
static void add_loopback_address(const char *text)
{
    char address[INET6_ADDRSTRLEN];
    unsigned char bytes[sizeof(struct in6_addr)];
    struct address_order order = {0};
    struct {
        unsigned char header[16];
        int32_t error;
        unsigned char rest[512];
    } reply;
    int family;
    size_t length = strcspn(text, "/");
    if (length >= sizeof address)
        fail("SANDBOX_UNAVAILABLE", "address %s: none", text);
    memcpy(address, text, length);
    address[length] = '\0';
    size_t size = packed(address, &family, bytes);
    if (!size)
        fail("SANDBOX_UNAVAILABLE", "address %s: none", text);
    order.address.family = (uint8_t)family;
    order.address.prefix = (uint8_t)(text[length] ? atoi(text + length + 1) : (int)size * 8);
    order.address.index = LOOPBACK_INDEX;
    size_t used = put_attribute(order.attributes, ATTRIBUTE_LOCAL, bytes, size);
    used += put_attribute(order.attributes + used, ATTRIBUTE_ADDRESS, bytes, size);
    order.header.kind = NEW_ADDRESS;
    order.header.flags = REQUEST | ACKNOWLEDGE | CREATE | EXCLUSIVE;
    order.header.sequence = 1;
    order.header.length = (uint32_t)(offsetof(struct address_order, attributes) + used);

    int link = new_socket(AF_NETLINK, SOCK_RAW);
    if (send(link, &order, order.header.length, 0) < 0)
        fail_errno("address %s", text);
    if (recv(link, &reply, sizeof reply, 0) < (ssize_t)offsetof(__typeof__(reply), rest))
        fail_errno("address %s", text);
    close(link);
    if (reply.error && reply.error != -EEXIST) { /* ::1 exists from the start */
        errno = (int)-(unsigned)reply.error;
        fail_errno("address %s", text);
    }
}

/* The address of a socket; its size, or 0 with errno. */
static socklen_t place(const char *address, uint16_t port, struct sockaddr_storage *found)
{
    unsigned char bytes[sizeof(struct in6_addr)];
    int family;
    memset(found, 0, sizeof *found);
    size_t size = packed(address, &family, bytes);
    if (!size) {
        errno = EADDRNOTAVAIL;
        return 0;
    }
    if (family == AF_INET6) {
        struct sockaddr_in6 *six = (struct sockaddr_in6 *)found;
        six->sin6_family = AF_INET6;
        six->sin6_port = htons(port);
        memcpy(&six->sin6_addr, bytes, size);
        return sizeof *six;
    }
    struct sockaddr_in *four = (struct sockaddr_in *)found;
    four->sin_family = AF_INET;
    four->sin_port = htons(port);
    memcpy(&four->sin_addr, bytes, size);
    return sizeof *four;
}

static int prepare_listener(int bound, const struct sockaddr_storage *at, socklen_t size)
{
    const int yes = 1;
    if (setsockopt(bound, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) < 0)
        return -1;
    /* The kernel still checks its address for duplicates. */
    if (at->ss_family == AF_INET6 &&
        setsockopt(bound, IPPROTO_IPV6, IPV6_FREELY_BOUND, &yes, sizeof yes) < 0)
        return -1;
    if (bind(bound, (const struct sockaddr *)at, size) < 0)
        return -1;
    return listen(bound, BACKLOG);
}

int listener_at(const char *address, uint16_t port)
{
    struct sockaddr_storage at;
    socklen_t size = place(address, port, &at);
    if (!size)
        return -1;
    int bound = socket(at.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (bound < 0)
        return -1;
    if (prepare_listener(bound, &at, size) < 0) {
        int reason = errno;
        close(bound);
        errno = reason;
        return -1;
    }
    return bound;
}

static int must_listen(const char *address, uint16_t port)
{
    int bound = listener_at(address, port);
    if (bound < 0)
        fail_errno(NULL);
    return bound;
}

static void pass_on(const char *words, const int *sockets, int count)
{
    static struct text text;
    text.length = 0;
    put(&text, words);
    report(&text, sockets, count);
    for (int each = 0; each < count; each++)
        close(sockets[each]);
}

static int name_service_at(const char *address)
{
    struct sockaddr_storage at;
    socklen_t size = place(address, NAME_SERVICE, &at);
    if (!size)
        fail_errno(NULL);
    int bound = new_socket(at.ss_family, SOCK_DGRAM);
    if (bind(bound, (const struct sockaddr *)&at, size) < 0)
        fail_errno(NULL);
    return bound;
}

/* Reads a file of counters of this network namespace; an empty text if there is none. */
static const char *counters(const char *path)
{
    static char text[8192];
    int file = openat(processes, path, O_RDONLY | O_CLOEXEC);
    ssize_t size = file < 0 ? 0 : read(file, text, sizeof text - 1);
    if (file >= 0)
        close(file);
    text[size > 0 ? size : 0] = '\0';
    return text;
}

/* How often an address was tried to which there is no route: one that stands for no permitted name. The
 * kernel counts them, for TCP and UDP; it does not keep the addresses. */
int64_t attempts_without_route(void)
{
    static const char FOUR[] = " OutNoRoutes ", SIX[] = "Ip6OutNoRoutes";
    const char *names = strstr(counters("self/net/snmp"), "Ip:");
    const char *values = names ? strstr(names, "\nIp:") : NULL;
    int64_t found = 0;
    /* A line of names, and below it one of values in the same order. */
    names = names ? strchr(names, ' ') : NULL;
    values = values ? strchr(values, ' ') : NULL;
    while (names && values && strncmp(names, FOUR, sizeof FOUR - 1) != 0) {
        names = strchr(names + 1, ' ');
        values = strchr(values + 1, ' ');
    }
    if (names && values)
        found = strtoll(values, NULL, 10);
    const char *six = strstr(counters("self/net/snmp6"), SIX);
    return six ? found + strtoll(six + sizeof SIX - 1, NULL, 10) : found;
}

/* The sandbox's doors: sockets bound here, accepted on by the host. */
void open_doors(const struct request *request)
{
    int bound[MAX_PASSED], count = 0;
    for (uint32_t each = 0; each < request->addresses_count; each++)
        add_loopback_address(request->addresses[each]);
    for (uint32_t each = 0; each < request->listen_count; each++) {
        bound[count++] = must_listen(request->listen[each].address, request->listen[each].port);
        if (count == MAX_PASSED || each + 1 == request->listen_count) {
            pass_on("{\"kind\": \"listening\"}", bound, count);
            count = 0;
        }
    }
    if (*request->resolver) {
        bound[0] = name_service_at(request->resolver);
        bound[1] = must_listen(request->resolver, NAME_SERVICE);
        pass_on("{\"kind\": \"resolver\"}", bound, 2);
    }
}
