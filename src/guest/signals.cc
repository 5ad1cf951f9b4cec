#include "guest/signals.h"

#include <signal.h>

#include "guest/text.h"

namespace caisson::guest {
namespace {

struct Row {
  int number;
  std::string_view name;
};
constexpr Row kSignals[] = {
    {SIGHUP, "HUP"},   {SIGINT, "INT"},       {SIGQUIT, "QUIT"}, {SIGILL, "ILL"},
    {SIGTRAP, "TRAP"}, {SIGABRT, "ABRT"},     {SIGBUS, "BUS"},   {SIGFPE, "FPE"},
    {SIGKILL, "KILL"}, {SIGUSR1, "USR1"},     {SIGSEGV, "SEGV"}, {SIGUSR2, "USR2"},
    {SIGPIPE, "PIPE"}, {SIGALRM, "ALRM"},     {SIGTERM, "TERM"}, {SIGCHLD, "CHLD"},
    {SIGCONT, "CONT"}, {SIGSTOP, "STOP"},     {SIGTSTP, "TSTP"}, {SIGTTIN, "TTIN"},
    {SIGTTOU, "TTOU"}, {SIGURG, "URG"},       {SIGXCPU, "XCPU"}, {SIGXFSZ, "XFSZ"},
    {SIGVTALRM, "VTALRM"}, {SIGPROF, "PROF"}, {SIGWINCH, "WINCH"}, {SIGIO, "IO"},
    {SIGPWR, "PWR"},   {SIGSYS, "SYS"},
};
constexpr int kFirstRealTime = 32;  // of the kernel; the libraries keep the first few

}  // namespace

std::string SignalName(int number) {
  for (const Row& row : kSignals) {
    if (row.number == number) return std::string(row.name);
  }
  return "RTMIN+" + Decimal(number - kFirstRealTime);
}

int SignalNumber(std::string_view name) {
  if (name.starts_with("SIG")) name.remove_prefix(3);
  for (const Row& row : kSignals) {
    if (row.name == name) return row.number;
  }
  return 0;
}

}  // namespace caisson::guest
