/* The CPUs that work may be spread over. */
#ifndef BASE_CPUS_H
#define BASE_CPUS_H

#define CPUS_MAX 1024

typedef struct {
    unsigned n;            /* CPUs that this process may run on, 1 .. CPUS_MAX */
    unsigned cores;        /* physical ones among them: 1 .. n */
    unsigned paid;         /* as many as the control groups that it is in let it use at a time, 1 .. n */
    unsigned id[CPUS_MAX]; /* one of every core first, then those that share one with them; each in order */
} cpus;

/* root: NULL, or a directory that stands for the file system's root (for tests): of it are read
 * sys/devices/system/cpu/cpuN/topology/thread_siblings_list, proc/self/cgroup and sys/fs/cgroup/.../cpu.max
 * (version 2). What can't be read limits nothing. */
void cpus_of(cpus *c, const char *root, const unsigned *allowed, unsigned n);
/* Of this process, by its affinity. */
void cpus_here(cpus *c);
/* The lesser of n and paid, of this process: for work that has a use for all of them. */
unsigned cpus_usable(void);
/* The calling thread runs on this CPU alone from now on, where the system lets it. */
void cpus_pin(unsigned id);
#endif
