// Counts and times the calls into CUDA's driver of a process that has this library preloaded: what
// dlsym and cuGetProcAddress find of the driver is handed out behind wrappers.
#include <dlfcn.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <mutex>
#include <utility>

namespace {

// Wide enough for every function of the driver: they take integers and pointers, twelve at most.
using Any = long (*)(long, long, long, long, long, long, long, long, long, long, long, long);

struct Counted {
  Any real;
  const char* name;
  std::atomic<long> calls;
  std::atomic<long> nanoseconds;
};

// Constant-initialized: other libraries look symbols up before the constructors of this one run.
constexpr int kMost = 512;
Counted counted[kMost];
std::atomic<int> known;
std::mutex registering;

template <int I>
long Wrapper(long a, long b, long c, long d, long e, long f, long g, long h, long i, long j, long k,
             long l) {
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  const long status = counted[I].real(a, b, c, d, e, f, g, h, i, j, k, l);
  const std::chrono::nanoseconds taken = Clock::now() - start;
  counted[I].calls++;
  counted[I].nanoseconds += taken.count();
  return status;
}

template <int... I>
Any WrapperAt(int number, std::integer_sequence<int, I...>) {
  static constexpr Any wrappers[] = {Wrapper<I>...};
  return wrappers[number];
}

Any WrapperAt(int number) { return WrapperAt(number, std::make_integer_sequence<int, kMost>()); }

// What stands for a function of the driver; the function itself once there are too many.
void* Wrapped(const char* name, void* function) {
  const std::lock_guard<std::mutex> lock(registering);
  const Any real = reinterpret_cast<Any>(function);
  for (int i = 0; i < known; i++) {
    if (counted[i].real == real) return reinterpret_cast<void*>(WrapperAt(i));
    if (WrapperAt(i) == real) return function;
  }
  if (known == kMost) return function;
  counted[known].real = real;
  counted[known].name = strdup(name);
  return reinterpret_cast<void*>(WrapperAt(known++));
}

using Find = int (*)(const char*, void**, int, unsigned long, void*);
Find find;

// cuGetProcAddress, whose second version has one parameter more.
int FindWrapped(const char* name, void** function, int version, unsigned long flags, void* found) {
  const int status = find(name, function, version, flags, found);
  if (status == 0 && function != nullptr && *function != nullptr) {
    *function = Wrapped(name, *function);
  }
  return status;
}

bool StartsWith(const char* text, const char* start) {
  return std::strncmp(text, start, std::strlen(start)) == 0;
}

}  // namespace

extern "C" {

void* dlsym(void* handle, const char* name) noexcept {
  using Lookup = void* (*)(void*, const char*);
  static const Lookup real = [] {
    void* found = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.34");
    if (found == nullptr) found = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
    return reinterpret_cast<Lookup>(found);
  }();
  void* found = real(handle, name);
  if (found == nullptr || name[0] != 'c' || name[1] != 'u' || name[2] < 'A' || name[2] > 'Z') {
    return found;
  }
  if (!StartsWith(name, "cuGetProcAddress")) return Wrapped(name, found);
  if (found != reinterpret_cast<void*>(FindWrapped)) find = reinterpret_cast<Find>(found);
  return reinterpret_cast<void*>(FindWrapped);
}

void driver_calls_reset() {
  for (int i = 0; i < known; i++) counted[i].calls = counted[i].nanoseconds = 0;
}

// The name, calls and nanoseconds of a function; false when there are no more.
bool driver_calls_read(int number, const char** name, long* calls, long* nanoseconds) {
  if (number >= known) return false;
  *name = counted[number].name;
  *calls = counted[number].calls;
  *nanoseconds = counted[number].nanoseconds;
  return true;
}
}
