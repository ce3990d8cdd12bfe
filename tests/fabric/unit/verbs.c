/* A libibverbs of two devices that cannot exist here: the second one's registration fails with $FAKE_ERRNO. */
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>

static const char *names[] = {"rocep1s0f0", "roceP2p1s0f0"};
static void *devices[] = {&names[0], &names[1], NULL};
static int open_things = 0;

void **ibv_get_device_list(int *count) { *count = getenv("FAKE_NONE") ? 0 : 2; return devices; }
void ibv_free_device_list(void **list) { if (open_things || list != devices) abort(); }
const char *ibv_get_device_name(void *device) { return *(const char **)device; }
void *ibv_open_device(void *device) { open_things++; return device; }
int ibv_close_device(void *context) { open_things--; return context == NULL; }
void *ibv_alloc_pd(void *context) { open_things++; return context; }
int ibv_dealloc_pd(void *domain) { open_things--; return domain == NULL; }
void *ibv_reg_mr(void *domain, void *address, size_t length, int access) {
    const char *wanted = getenv("FAKE_ERRNO");
    if (access != 7 || length < 2) abort();
    ((char *)address)[0] = 1;
    ((char *)address)[length - 1] = 1;
    if (wanted && domain == devices[1]) { errno = atoi(wanted); return NULL; }
    open_things++;
    return address;
}
int ibv_dereg_mr(void *region) { open_things--; return region == NULL; }
