// The time of a round trip between two cores (cores.py).
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <time.h>

static _Alignas(128) atomic_int turn; // even: the first core's

typedef struct {
  int core, trips;
} Second;

static void bind_to(int core) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(core, &set);
  pthread_setaffinity_np(pthread_self(), sizeof set, &set);
}

static void await(int value) {
  while (atomic_load_explicit(&turn, memory_order_acquire) != value) {
  }
}

static void* answer(void* argument) {
  const Second* second = argument;
  bind_to(second->core);
  for (int trip = 0; trip < second->trips; ++trip) {
    await(2 * trip + 1);
    atomic_store_explicit(&turn, 2 * trip + 2, memory_order_release);
  }
  return 0;
}

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec + 1e-9 * t.tv_nsec;
}

// Seconds, or -1 where there is no second thread to be had.
double round_trip(int first, int second, int trips) {
  cpu_set_t before;
  pthread_getaffinity_np(pthread_self(), sizeof before, &before);
  bind_to(first);
  atomic_store(&turn, 0);
  Second other = {second, trips};
  pthread_t thread;
  if (pthread_create(&thread, 0, answer, &other) != 0) {
    pthread_setaffinity_np(pthread_self(), sizeof before, &before);
    return -1;
  }
  double start = 0;
  const int warm = trips / 100;
  for (int trip = 0; trip < trips; ++trip) {
    if (trip == warm) start = now();
    atomic_store_explicit(&turn, 2 * trip + 1, memory_order_release);
    await(2 * trip + 2);
  }
  const double took = (now() - start) / (trips - warm);
  pthread_join(thread, 0);
  pthread_setaffinity_np(pthread_self(), sizeof before, &before);
  return took;
}
