// Says who it runs as, through musl's passwd functions.
#include <pwd.h>
#include <stdio.h>
#include <unistd.h>

int main(void) {
  const struct passwd* user = getpwuid(getuid());
  printf("musl greets %s\n", user == NULL ? "nobody" : user->pw_name);
  return 0;
}
