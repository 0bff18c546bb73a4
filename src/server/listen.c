#define _GNU_SOURCE
#include "server/listen.h"
#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static bool is_loopback(const struct sockaddr *a) {
    if (a->sa_family == AF_INET)
        return ntohl(((const struct sockaddr_in *)(const void *)a)->sin_addr.s_addr) >> 24 == 127;
    const struct in6_addr *six = &((const struct sockaddr_in6 *)(const void *)a)->sin6_addr;
    return IN6_IS_ADDR_LOOPBACK(six) || (IN6_IS_ADDR_V4MAPPED(six) && six->s6_addr[12] == 127);
}

/* What it is bound to, as text. */
static void describe(listener *l) {
    struct sockaddr_storage s;
    socklen_t n = sizeof s;
    char host[INET6_ADDRSTRLEN] = "", port[8] = "0";
    getsockname(l->fd, (struct sockaddr *)&s, &n);
    getnameinfo((struct sockaddr *)&s, n, host, sizeof host, port, sizeof port,
                NI_NUMERICHOST | NI_NUMERICSERV);
    snprintf(l->address, sizeof l->address, s.ss_family == AF_INET6 ? "[%s]" : "%s", host);
    sscanf(port, "%d", &l->port);
}

static bool bind_to(listener *l, const struct addrinfo *a, const char *host, int port, err *e) {
    int on = 1;
    l->fd = socket(a->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (l->fd < 0) return err_errno(e, "a socket for %s", host);
    setsockopt(l->fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (a->ai_family == AF_INET6) setsockopt(l->fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
    if (bind(l->fd, a->ai_addr, a->ai_addrlen) || listen(l->fd, SOMAXCONN)) {
        err_errno(e, "can't listen at %s, port %d", host, port);
        close(l->fd);
        return false;
    }
    describe(l);
    return true;
}

bool listener_open(listener *l, const char *host, int port, bool open, err *e) {
    char service[8];
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE}, *list;
    snprintf(service, sizeof service, "%d", port);
    int code = getaddrinfo(host, service, &hints, &list);
    if (code) return err_set(e, ERR_USAGE, "--host %s: %s", host, gai_strerror(code));
    l->loopback = is_loopback(list->ai_addr);
    bool ok =
        l->loopback || open ||
        err_set(e, ERR_USAGE,
                "--host %s can be reached from other machines: give --api-key-file, or listen at 127.0.0.1",
                host);
    if (ok) ok = bind_to(l, list, host, port, e);
    freeaddrinfo(list);
    return ok;
}
