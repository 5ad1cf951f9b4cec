// Forced into every unit of a musl program: lets Debian's libstdc++ headers, which were configured
// for glibc, compile against musl's headers.
#pragma once
#define __GLIBC_PREREQ(a, b) 0
#define _GLIBCXX_GTHREAD_USE_WEAK 0  // else std::mutex silently does nothing
#define _GLIBCXX_EXTERN_TEMPLATE 0
#define __locale_t locale_t
#define __uselocale uselocale
// The character classes that <ctype.h> of glibc has as an enumeration.
#define _ISupper 1
#define _ISlower 2
#define _ISalpha 4
#define _ISdigit 8
#define _ISxdigit 16
#define _ISspace 32
#define _ISprint 64
#define _ISgraph 128
#define _ISblank 256
#define _IScntrl 512
#define _ISpunct 1024
#define _ISalnum 2048
#include <bits/c++config.h>
#undef _GLIBCXX_USE_PTHREAD_COND_CLOCKWAIT
#undef _GLIBCXX_USE_PTHREAD_MUTEX_CLOCKLOCK
#undef _GLIBCXX_USE_PTHREAD_RWLOCK_CLOCKLOCK
