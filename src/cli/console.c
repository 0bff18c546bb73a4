#define _GNU_SOURCE
#include "cli/console.h"
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#define GRACE_NS 50000000 /* from SIGINT to console_cancel() */

const int console_signals[] = {SIGINT, SIGTERM, SIGHUP, SIGWINCH, SIGCONT, 0};
/* What ends a program where nobody catches it. */
static const int fatal[] = {SIGQUIT, SIGABRT, SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGUSR1, SIGUSR2, SIGXCPU, 0};

static volatile sig_atomic_t interrupted, terminated, resized, resumed;
static atomic_bool cancel;
static timer_t timer;
static volatile sig_atomic_t has_timer;

static struct termios found;
static volatile sig_atomic_t minded, hushed, raw_keys;
static const char *volatile leave_text, *volatile return_text;

/* ---- modes: all of this is called by signal handlers, too ---- */

static bool in_front(void) {
    return minded && tcgetpgrp(0) == getpgrp();
}

static void apply(void) {
    if (!in_front()) return; /* the terminal is somebody else's */
    struct termios t = found;
    if (hushed) t.c_lflag &= ~(tcflag_t)(ECHO | (raw_keys ? ICANON : 0));
    if (hushed && raw_keys) {
        t.c_cc[VMIN] = 1;
        t.c_cc[VTIME] = 0;
    }
    tcsetattr(0, TCSANOW, &t);
}

static void leave(void) {
    const char *text = leave_text;
    if (!in_front()) return;
    tcsetattr(0, TCSANOW, &found);
    if (text) (void)!write(1, text, strlen(text));
}

static void come_back(void) {
    const char *text = return_text;
    apply();
    if (text && in_front()) (void)!write(1, text, strlen(text));
}

void console_hush(bool raw) {
    raw_keys = raw;
    hushed = 1;
    apply();
}

void console_show(void) {
    hushed = 0;
    apply();
}

void console_forget(void) {
    if (in_front()) tcflush(0, TCIFLUSH);
}

void console_on_leave(const char *text, const char *back) {
    leave_text = text;
    return_text = back;
}

/* ---- signals ---- */

static void set_timer(long ns) {
    const struct itimerspec t = {.it_value = {.tv_nsec = ns}};
    if (has_timer) timer_settime(timer, 0, &t, NULL);
}

static void on_signal(int sig) {
    int error = errno;
    if (sig == SIGINT) {
        interrupted = 1;
        if (has_timer)
            set_timer(GRACE_NS);
        else
            atomic_store(&cancel, true);
    } else if (sig == SIGALRM) {
        if (interrupted) atomic_store(&cancel, true);
    } else if (sig == SIGWINCH) {
        resized = 1;
    } else if (sig == SIGCONT) {
        resumed = 1;
        if (hushed) come_back();
    } else {
        terminated = sig;
        atomic_store(&cancel, true);
    }
    errno = error;
}

static void catch (int sig, void (*handler)(int)) {
    struct sigaction sa = {.sa_handler = handler}; /* without SA_RESTART: reading ends */
    sigemptyset(&sa.sa_mask);
    sigaction(sig, &sa, NULL);
}

static bool is_default(int sig) {
    struct sigaction old;
    return !sigaction(sig, NULL, &old) && !(old.sa_flags & SA_SIGINFO) && old.sa_handler == SIG_DFL;
}

static void on_fatal(int sig) {
    leave();
    catch (sig, SIG_DFL);
    raise(sig); /* comes when this returns */
}

static void on_stop(int sig) {
    int error = errno;
    sigset_t it;
    leave();
    catch (sig, SIG_DFL);
    sigemptyset(&it);
    sigaddset(&it, sig);
    raise(sig);
    pthread_sigmask(SIG_UNBLOCK, &it, NULL); /* stops here; SIGCONT's handler runs first */
    catch (sig, on_stop);
    errno = error;
}

void console_open(bool typed) {
    struct sigaction old;
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGALRM};
    minded = typed && !tcgetattr(0, &found);
    catch (SIGALRM, on_signal);
    has_timer = !timer_create(CLOCK_MONOTONIC, &event, &timer);
    for (const int *s = console_signals; *s; s++)
        if (!sigaction(*s, NULL, &old) && (old.sa_handler != SIG_IGN || *s != SIGHUP)) catch (*s, on_signal);
    for (const int *s = fatal; minded && *s; s++)
        if (is_default(*s)) catch (*s, on_fatal);
    if (minded && is_default(SIGTSTP)) catch (SIGTSTP, on_stop); /* not where a shell has no job control */
}

void console_close(void) {
    console_show();
    if (has_timer) timer_delete(timer);
    has_timer = minded = 0;
}

bool console_interrupted(void) {
    return interrupted;
}

int console_terminated(void) {
    return terminated;
}

void console_calm(void) {
    set_timer(0);
    interrupted = 0;
    if (!terminated) atomic_store(&cancel, false);
}

static bool take(volatile sig_atomic_t *flag) {
    bool was = *flag;
    *flag = 0;
    return was;
}

bool console_resized(void) {
    return take(&resized);
}

bool console_resumed(void) {
    return take(&resumed);
}

const atomic_bool *console_cancel(void) {
    return &cancel;
}
