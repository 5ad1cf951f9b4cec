// The few symbols of the C++ runtime that a program without exceptions still needs on musl. Running
// out of memory, and every std::__throw_*, ends the process: there is nobody to catch.
#include <time.h>

#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <new>

namespace {
[[noreturn]] void Die() { __builtin_trap(); }
}  // namespace

void* operator new(std::size_t size) {
  void* block = std::malloc(size == 0 ? 1 : size);
  if (block == nullptr) Die();
  return block;
}
void* operator new[](std::size_t size) { return operator new(size); }
void operator delete(void* block) noexcept { std::free(block); }
void operator delete[](void* block) noexcept { std::free(block); }
void operator delete(void* block, std::size_t) noexcept { std::free(block); }
void operator delete[](void* block, std::size_t) noexcept { std::free(block); }

namespace std {
void __throw_length_error(const char*) { Die(); }
void __throw_out_of_range(const char*) { Die(); }
void __throw_out_of_range_fmt(const char*, ...) { Die(); }
void __throw_logic_error(const char*) { Die(); }
void __throw_invalid_argument(const char*) { Die(); }
void __throw_bad_alloc() { Die(); }
void __throw_bad_array_new_length() { Die(); }
void __throw_bad_function_call() { Die(); }
void __throw_bad_optional_access() { Die(); }
void __throw_system_error(int) { Die(); }

namespace chrono {
inline namespace _V2 {
namespace {
timespec Read(clockid_t clock) {
  timespec time{};
  clock_gettime(clock, &time);
  return time;
}
}  // namespace
steady_clock::time_point steady_clock::now() noexcept {
  timespec time = Read(CLOCK_MONOTONIC);
  return time_point(duration(seconds(time.tv_sec) + nanoseconds(time.tv_nsec)));
}
system_clock::time_point system_clock::now() noexcept {
  timespec time = Read(CLOCK_REALTIME);
  return time_point(duration(seconds(time.tv_sec) + nanoseconds(time.tv_nsec)));
}
}  // namespace _V2
}  // namespace chrono
}  // namespace std

extern "C" {
void* __dso_handle = nullptr;
int __cxa_atexit(void (*)(void*), void*, void*) { return 0; }  // such a program ends with _exit
void __cxa_pure_virtual() { Die(); }
}
