# Where Debian keeps musl, the C++ target headers and the kernel's asm headers for this architecture.
set(MUSL_LIB_DIR /usr/lib/aarch64-linux-musl)
set(MUSL_INCLUDE_DIR /usr/include/aarch64-linux-musl)
set(MUSL_CXX_TARGET_INCLUDE /usr/include/aarch64-linux-gnu)
set(MUSL_KERNEL_ASM /usr/include/aarch64-linux-gnu/asm)
