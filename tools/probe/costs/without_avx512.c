/* Answer the CPUID instructions at given addresses as a processor without AVX-512 does.

   hide_avx512 replaces each CPUID (0F A2) by UD2 (0F 0B), which is as long; the handler of SIGILL executes CPUID and
   clears the AVX-512 bits of leaf 7. */

#define _GNU_SOURCE
#include <cpuid.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

enum { MOST = 1024 };
static uintptr_t places[MOST];
static int known;

/* Leaf 7, subleaf 0: F DQ IFMA PF ER CD BW VL; VBMI VBMI2 VNNI BITALG VPOPCNTDQ; 4VNNIW 4FMAPS VP2INTERSECT FP16 and AMX.
   Subleaf 1: BF16. */
static const unsigned hidden_ebx = 1u << 16 | 1u << 17 | 1u << 21 | 1u << 26 | 1u << 27 | 1u << 28 | 1u << 30 | 1u << 31;
static const unsigned hidden_ecx = 1u << 1 | 1u << 6 | 1u << 11 | 1u << 12 | 1u << 14;
static const unsigned hidden_edx = 1u << 2 | 1u << 3 | 1u << 8 | 1u << 22 | 1u << 23 | 1u << 24 | 1u << 25;

static void answer(int number, siginfo_t *info, void *context) {
  greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
  for (int i = 0; i < known; i++) {
    if ((uintptr_t)registers[REG_RIP] != places[i]) continue;
    unsigned leaf = registers[REG_RAX], subleaf = registers[REG_RCX], a, b, c, d;
    __cpuid_count(leaf, subleaf, a, b, c, d);
    if (leaf == 7 && subleaf == 0) b &= ~hidden_ebx, c &= ~hidden_ecx, d &= ~hidden_edx;
    if (leaf == 7 && subleaf == 1) a &= ~(1u << 5);
    registers[REG_RAX] = a, registers[REG_RBX] = b, registers[REG_RCX] = c, registers[REG_RDX] = d;
    registers[REG_RIP] += 2;
    return;
  }
  signal(SIGILL, SIG_DFL); /* a real illegal instruction: it recurs, and ends the process */
}

/* Returns the number of addresses that hold no CPUID, which are left as they are; -1 if memory cannot be changed. */
int hide_avx512(const uintptr_t *addresses, int count) {
  long page = sysconf(_SC_PAGESIZE);
  int others = 0;
  struct sigaction action = {.sa_sigaction = answer, .sa_flags = SA_SIGINFO};
  if (sigaction(SIGILL, &action, 0)) return -1;
  for (int i = 0; i < count; i++) {
    unsigned char *code = (unsigned char *)addresses[i];
    if (known == MOST || code[0] != 0x0f || code[1] != 0xa2) { others++; continue; }
    uintptr_t first = addresses[i] & -page, end = (addresses[i] + 1 + page) & -page;
    if (mprotect((void *)first, end - first, PROT_READ | PROT_WRITE | PROT_EXEC)) return -1;
    places[known++] = addresses[i];
    code[1] = 0x0b;
    if (mprotect((void *)first, end - first, PROT_READ | PROT_EXEC)) return -1;
  }
  return others;
}
