# Where Debian keeps musl, the C++ target headers and the kernel's asm headers for this architecture.
set(MUSL_LIB_DIR /usr/lib/x86_64-linux-musl)
set(MUSL_INCLUDE_DIR /usr/include/x86_64-linux-musl)
set(MUSL_CXX_TARGET_INCLUDE /usr/include/x86_64-linux-gnu)
set(MUSL_KERNEL_ASM /usr/include/x86_64-linux-gnu/asm)
