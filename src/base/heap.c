#define _GNU_SOURCE
#include "base/heap.h"
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define ALIGN  16u
#define MAPPED ((size_t)1 << 20) /* from here on zeros are pages that nobody has touched */

/* In front of every block. */
typedef struct block {
    heap *h;                   /* NULL: nobody's */
    struct block *prev, *next; /* in the heap's ring */
    size_t size;               /* of the whole allocation */
    uint32_t lead;             /* from its start to what the caller has */
    bool mapped;
    bool held; /* mem_hold(): a hold follows */
} block;

typedef struct {
    void (*release)(void *what, size_t n);
    void *what;
    size_t n;
} hold;

struct heap {
    heap *parent, *prev, *next, *child; /* prev, next: among the parent's, which its lock guards */
    heap_hooks hooks;
    pthread_mutex_t lock;
    block ring;
    bool left;
    atomic_size_t bytes, peak; /* children's included */
};

/* What a thread is in. */
typedef struct guard {
    struct guard *outer;
    heap *h;
    size_t wanted;
    jmp_buf out;
} guard;

/* The one variable of the library that isn't its caller's: mem_guard() sets it and puts it back. */
static _Thread_local guard *current;

/* ---- where memory comes from ---- */

static void *take(const heap_hooks *hooks, size_t size, size_t align) {
    if (hooks && hooks->alloc) return hooks->alloc(hooks->ctx, size, align);
    return align <= ALIGN ? malloc(size) : aligned_alloc(align, size); /* size is a multiple of align */
}

static void give(const heap_hooks *hooks, void *p, size_t size) {
    if (hooks && hooks->alloc)
        hooks->free(hooks->ctx, p, size);
    else
        free(p);
}

static void *take_zeroed(const heap_hooks *hooks, size_t size, size_t align, bool *mapped) {
    bool system = !hooks || !hooks->alloc;
    if (system && size >= MAPPED) {
        void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        *mapped = p != MAP_FAILED;
        return *mapped ? p : NULL;
    }
    if (system && align <= ALIGN) return calloc(1, size);
    void *p = take(hooks, size, align);
    return p ? memset(p, 0, size) : NULL;
}

static void release(block *b, const heap_hooks *hooks) {
    void *start = (char *)(b + 1) - b->lead;
    if (b->mapped)
        munmap(start, b->size);
    else
        give(hooks, start, b->size);
}

/* ---- locks ---- */

/* Whoever allocates takes a heap's lock. To the thread sanitizer that orders all that its threads did before,
 * and it would see races only where nobody happens to allocate. So under it heaps order nothing, and what
 * their locks guard it doesn't look at; but in the tests of heaps (heap_seen). */
#ifdef __SANITIZE_THREAD__
extern bool heap_seen; /* for tests: they declare it */
bool heap_seen;
void AnnotateIgnoreSyncBegin(const char *file, int line);
void AnnotateIgnoreSyncEnd(const char *file, int line);
void AnnotateIgnoreReadsBegin(const char *file, int line);
void AnnotateIgnoreReadsEnd(const char *file, int line);
void AnnotateIgnoreWritesBegin(const char *file, int line);
void AnnotateIgnoreWritesEnd(const char *file, int line);

static void hide(void) {
    if (heap_seen) return;
    AnnotateIgnoreSyncBegin(__FILE__, __LINE__);
    AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
    AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
}

static void show(void) {
    if (heap_seen) return;
    AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
    AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
    AnnotateIgnoreSyncEnd(__FILE__, __LINE__);
}
#else
static void hide(void) {}
static void show(void) {}
#endif

static void lock(heap *h) {
    hide();
    pthread_mutex_lock(&h->lock);
}

static void unlock(heap *h) {
    pthread_mutex_unlock(&h->lock);
    show();
}

/* ---- heaps ---- */

/* Relaxed: figures that nothing hangs on, which should order nothing either. */
static void count(heap *h, size_t size) {
    const memory_order any = memory_order_relaxed;
    for (; h; h = h->parent) {
        size_t now = atomic_fetch_add_explicit(&h->bytes, size, any) + size;
        size_t peak = atomic_load_explicit(&h->peak, any);
        while (now > peak && !atomic_compare_exchange_weak_explicit(&h->peak, &peak, now, any, any)) continue;
    }
}

static void uncount(heap *h, size_t size) {
    for (; h; h = h->parent) atomic_fetch_sub_explicit(&h->bytes, size, memory_order_relaxed);
}

heap *heap_new(heap *parent, const heap_hooks *hooks) {
    const heap_hooks none = {0};
    if (!hooks) hooks = parent ? &parent->hooks : &none;
    heap *h = take(hooks, sizeof *h, ALIGN);
    if (!h) return NULL;
    *h = (heap){.parent = parent, .hooks = *hooks};
    h->ring.prev = h->ring.next = &h->ring;
    pthread_mutex_init(&h->lock, NULL);
    if (!parent) return h;
    lock(parent);
    h->next = parent->child;
    if (h->next) h->next->prev = h;
    parent->child = h;
    unlock(parent);
    return h;
}

/* With h->lock held: nobody needs h any more. */
static bool over(const heap *h) {
    return h->left && h->ring.next == &h->ring && !h->child;
}

/* Nothing is in it. */
static void end(heap *h) {
    heap *parent = h->parent;
    bool last = false;
    if (parent) {
        lock(parent);
        if (h->next) h->next->prev = h->prev;
        *(h->prev ? &h->prev->next : &parent->child) = h->next;
        last = over(parent);
        unlock(parent);
    }
    hide();
    pthread_mutex_destroy(&h->lock);
    const heap_hooks hooks = h->hooks;
    give(&hooks, h, sizeof *h);
    show();
    if (last) end(parent);
}

static block *first_held(const heap *h) {
    block *b = h->ring.next;
    while (b != &h->ring && !b->held) b = b->next;
    return b == &h->ring ? NULL : b;
}

void heap_drop(heap *h) {
    if (!h) return;
    h->left = false; /* its children's end is not its own */
    while (h->child) heap_drop(h->child);
    for (block *b; (b = first_held(h));) {
        const hold *x = (const hold *)(const void *)(b + 1);
        b->held = false;
        x->release(x->what, x->n); /* may free blocks */
    }
    for (block *b = h->ring.next, *next; b != &h->ring; b = next) {
        next = b->next;
        uncount(h, b->size);
        release(b, &h->hooks);
    }
    end(h);
}

const heap_hooks *heap_hooks_of(const heap *h) {
    return h ? &h->hooks : NULL;
}

void heap_leave(heap *h) {
    if (!h) return;
    lock(h);
    h->left = true;
    bool last = over(h);
    unlock(h);
    if (last) end(h);
}

size_t heap_bytes(const heap *h) {
    return h ? atomic_load(&h->bytes) : 0;
}

size_t heap_peak(const heap *h) {
    return h ? atomic_load(&h->peak) : 0;
}

heap *heap_current(void) {
    return current ? current->h : NULL;
}

/* ---- blocks ---- */

static void enter(heap *h, block *b) {
    if (!h) return;
    count(h, b->size);
    lock(h);
    b->prev = h->ring.prev;
    b->next = &h->ring;
    b->prev->next = b->next->prev = b;
    unlock(h);
}

/* NULL: there is no memory. align: a power of two. */
static void *make(size_t size, size_t align, bool zero) {
    heap *h = heap_current();
    const heap_hooks *hooks = h ? &h->hooks : NULL;
    if (align < ALIGN) align = ALIGN;
    size_t lead = (sizeof(block) + align - 1) / align * align;
    if (size > SIZE_MAX / 2) return NULL;
    bool mapped = false;
    size_t whole = lead + size;
    if (align > ALIGN) whole = (whole + align - 1) / align * align;
    char *start = zero ? take_zeroed(hooks, whole, align, &mapped) : take(hooks, whole, align);
    if (!start) return NULL;
    block *b = (block *)(void *)(start + lead) - 1;
    *b = (block){.h = h, .size = whole, .lead = (uint32_t)lead, .mapped = mapped};
    enter(h, b);
    return b + 1;
}

void mem_free(void *p) {
    if (!p) return;
    block *b = (block *)p - 1;
    heap *h = b->h;
    if (!h) {
        release(b, NULL);
        return;
    }
    uncount(h, b->size);
    lock(h);
    b->prev->next = b->next;
    b->next->prev = b->prev;
    bool last = over(h);
    const heap_hooks hooks = h->hooks;
    unlock(h);
    release(b, &hooks);
    if (last) end(h);
}

void mem_die(size_t size) {
    if (!current) __builtin_trap(); /* no caller of the library is outside of a guard */
    current->wanted = size;
    longjmp(current->out, 1);
}

void *mem_alloc(size_t size) {
    void *p = make(size, ALIGN, false);
    if (!p) mem_die(size);
    return p;
}

void *mem_realloc(void *old, size_t size) {
    void *p = mem_try_realloc(old, size);
    if (!p) mem_die(size);
    return p;
}

void *mem_try(size_t count, size_t size) {
    return size && count > SIZE_MAX / 2 / size ? NULL : make(count * size, ALIGN, true);
}

void *mem_try_realloc(void *old, size_t size) {
    void *p = make(size, ALIGN, false);
    if (old && p) {
        const block *b = (block *)old - 1;
        size_t room = b->size - b->lead;
        memcpy(p, old, room < size ? room : size);
        mem_free(old);
    }
    return p;
}

void *mem_try_aligned(size_t size, size_t align) {
    return make(size, align, false);
}

void *mem_hold(void (*undo)(void *what, size_t n), void *what, size_t n) {
    hold *p = mem_try(1, sizeof *p);
    if (!p) return NULL;
    *p = (hold){undo, what, n};
    ((block *)(void *)p - 1)->held = true;
    return p;
}

bool mem_guard(heap *h, void (*fn)(void *ctx), void *ctx, size_t *wanted) {
    guard g = {.outer = current, .h = h};
    if (setjmp(g.out)) {
        current = g.outer;
        if (wanted) *wanted = g.wanted;
        return false;
    }
    current = &g;
    fn(ctx);
    current = g.outer;
    return true;
}

/* ---- the log ---- */

bool heap_logs(void) {
    return current && current->h && current->h->hooks.log;
}

void heap_log(heap_log_level level, const char *fmt, ...) {
    if (!heap_logs()) return;
    va_list ap, aq;
    va_start(ap, fmt);
    va_copy(aq, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    char *text = mem_try((size_t)(n < 0 ? 0 : n) + 1, 1);
    if (text && n >= 0) {
        vsnprintf(text, (size_t)n + 1, fmt, aq);
        current->h->hooks.log(current->h->hooks.log_ctx, level, text);
    }
    va_end(aq);
    mem_free(text);
}
