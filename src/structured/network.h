/* A grammar inside: rules that call each other, over terminals, which are automata over bytes.
 *
 *     rule    a start node; an instance of it counts what its counting edges bring (items of an array)
 *     node    edges to follow, and whether its rule may end here
 *     edge    takes a terminal, calls a rule, or costs nothing, and leads to a node of its rule
 *
 * A position in a text is a state of a terminal and a stack of nodes to return to. Rules are never empty, and
 * none calls itself without a byte in between; from every position there is a way to the end. */
#ifndef STRUCTURED_NETWORK_H
#define STRUCTURED_NETWORK_H
#include "structured/dfa.h"
#include "structured/grammar.h"
#include <pthread.h>

#define NO_LIMIT UINT32_MAX

typedef enum { EDGE_FREE, EDGE_TERMINAL, EDGE_RULE } edge_kind;

typedef struct {
    edge_kind kind;
    uint32_t what; /* terminal or rule */
    uint32_t to;
    bool counts; /* one more of what the rule counts: allowed below its max */
    bool enough; /* allowed once the rule has counted its min */
} net_edge;

typedef struct {
    uint32_t first, n; /* edges */
    uint32_t rule;
    bool final; /* the rule may end here */
} net_node;

typedef struct {
    uint32_t start;
    uint32_t min, max; /* NO_LIMIT */
} net_rule;

typedef struct {
    uint32_t start;    /* state */
    uint32_t min, max; /* characters, when counted */
    bool counted;      /* states marked STATE_COUNTS start a character */
    bool markup;       /* the grammar's own text, or free text: added tokens may spell it */
} net_terminal;

enum {
    STATE_ACCEPT = 1,  /* the terminal may end here */
    STATE_ON = 2,      /* and it may go on */
    STATE_COUNTS = 4,  /* a character begins behind it, unless the next byte ends the terminal */
    STATE_MAY_END = 8, /* free text: everything may end here */
    STATE_WIDE = 16,   /* most characters may follow: its mask is worth keeping */
};

struct grammar {
    arena *a;
    heap *home; /* of what is kept later */
    const net_rule *rule;
    const net_node *node;
    const net_edge *edge;
    const net_terminal *terminal;
    uint32_t n_rule, n_node, n_edge, n_terminal, n_state, n_class;
    uint8_t class[256];
    const uint32_t *next; /* [n_state][n_class]; 0: dead */
    const uint8_t *flags; /* [n_state] */
    const uint32_t *of;   /* [n_state] terminal */
    uint32_t root;        /* rule */
    pthread_mutex_t lock; /* of owners and caches */
    size_t owners, bytes;
    struct mask_cache *cache; /* one for each vocabulary */
};

static inline uint32_t grammar_step(const grammar *g, uint32_t state, uint8_t byte) {
    return g->next[(size_t)state * g->n_class + g->class[byte]];
}

/* ---- building ---- */

typedef struct net net;

/* tmp lives as long as the building. */
net *net_new(void);
void net_free(net *n);
arena *net_arena(net *n);
dfa_maker *net_maker(net *n);
bool net_failed(const net *n);
err *net_err(net *n);

uint32_t net_rule_new(net *n, uint32_t min, uint32_t max);
uint32_t net_start(const net *n, uint32_t rule); /* its start node */
uint32_t net_node_new(net *n, uint32_t rule);
void net_final(net *n, uint32_t node);
void net_edge_add(net *n, uint32_t from, net_edge e);
void net_free_edge(net *n, uint32_t from, uint32_t to);
void net_call(net *n, uint32_t from, uint32_t rule, uint32_t to);
void net_take(net *n, uint32_t from, uint32_t terminal, uint32_t to);
void net_take_text(net *n, uint32_t from, const char *text, uint32_t to); /* markup */

typedef struct {
    uint32_t min, max;
    bool counted, markup, may_end; /* may_end: at every state */
    uint32_t body;                 /* counted: the state in which characters begin */
} terminal_options;

/* A terminal of an automaton; o NULL: plain. UINT32_MAX after an error. */
uint32_t net_terminal_dfa(net *n, const dfa *d, const terminal_options *o);
/* Terminals of equal text are one. */
uint32_t net_terminal_text(net *n, const void *text, size_t len, bool markup);
uint32_t net_terminal_rx(net *n, const rx *x, const char *what, const terminal_options *o);

/* What root describes; takes n. NULL on error, also when nothing fits root. */
grammar *net_finish(net *n, uint32_t root, err *e);
#endif
