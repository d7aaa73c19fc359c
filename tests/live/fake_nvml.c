/* A stand-in for libnvidia-ml.so.1: GPUs whose readings, failures and counters a test sets. */
#include <stddef.h>
#include <string.h>
#include <time.h>

enum { OK = 0, INVALID = 2, UNSUPPORTED = 3, NOT_FOUND = 6, GPUS = 8, CALLS = 8 };
enum call { MEMORY, FIELDS, SAMPLES, HANDLE, MIG, LINK, INIT };

struct gpu {
    int index, mig_on, slot;
    unsigned long long total, used, reserved;
    unsigned long long counter[4]; /* pcie tx, rx (bytes), nvlink tx, rx (KiB) */
    int value_type[4], value_error[4];
    unsigned long long sample_us[16];
    unsigned int sample_value[16];
    int samples;
    int fail[CALLS];
};

static struct gpu gpus[GPUS], mig[GPUS][2];
static int count = 1, init_error, calls[CALLS];
static unsigned long long traffic; /* what each counter grows by between two readings */

struct memory_v2 { unsigned int version; unsigned long long total, reserved, free, used; };
union value { double d; unsigned int ui; unsigned long ul; unsigned long long ull; };
struct field {
    unsigned int id, scope;
    long long timestamp, latency;
    int type, error;
    union value value;
};
struct sample { unsigned long long stamp; union value value; };

/* -- what a test calls ---------------------------------------------------------------------- */

void fake_reset(int n) {
    memset(gpus, 0, sizeof gpus);
    memset(mig, 0, sizeof mig);
    memset(calls, 0, sizeof calls);
    count = n;
    init_error = 0;
    traffic = 0;
    for (int i = 0; i < GPUS; i++) {
        gpus[i].index = i;
        gpus[i].slot = -1;
        gpus[i].total = 80ull << 30;
        gpus[i].reserved = 1ull << 30;
        for (int f = 0; f < 4; f++) gpus[i].value_type[f] = 3;
        for (int s = 0; s < 2; s++) {
            mig[i][s] = gpus[i];
            mig[i][s].slot = s;
            mig[i][s].total = 20ull << 30;
        }
    }
}
void fake_fail(int i, int call, int error) {
    if (call == INIT) init_error = error;
    else gpus[i].fail[call] = error;
}
void fake_used(int i, unsigned long long bytes) { gpus[i].used = bytes; }
void fake_counter(int i, int f, unsigned long long value, int type, int error) {
    gpus[i].counter[f] = value;
    gpus[i].value_type[f] = type;
    gpus[i].value_error[f] = error;
}
void fake_mig(int i, int on) { gpus[i].mig_on = on; }
void fake_sample(int i, unsigned long long stamp_us, unsigned int percent) {
    struct gpu *g = &gpus[i];
    g->sample_us[g->samples % 16] = stamp_us;
    g->sample_value[g->samples++ % 16] = percent;
}
void fake_traffic(unsigned long long step) { traffic = step; }
int fake_calls(int call) { return calls[call]; }

/* -- what pynvml calls ------------------------------------------------------------------------ */

static int enter(struct gpu *g, enum call call) {
    calls[call]++;
    return g == NULL ? INVALID : g->fail[call];
}
int nvmlInitWithFlags(unsigned int flags) { return init_error; }
int nvmlShutdown(void) { return OK; }
const char *nvmlErrorString(int code) { return "fake error"; }
int nvmlDeviceGetCount_v2(unsigned int *n) { *n = count; return OK; }
int nvmlDeviceGetHandleByIndex_v2(unsigned int i, struct gpu **g) {
    *g = &gpus[i];
    return enter(*g, HANDLE);
}
int nvmlDeviceGetUUID(struct gpu *g, char *out, unsigned int size) {
    strcpy(out, g->slot < 0 ? "GPU-0" : "MIG-0-0");
    out[4] = '0' + g->index;
    if (g->slot >= 0) out[6] = '0' + g->slot;
    return OK;
}
int nvmlDeviceGetMigMode(struct gpu *g, unsigned int *now, unsigned int *later) {
    *now = *later = g->mig_on;
    return enter(g, MIG);
}
int nvmlDeviceGetMaxMigDeviceCount(struct gpu *g, unsigned int *n) { *n = 7; return OK; }
int nvmlDeviceGetMigDeviceHandleByIndex(struct gpu *g, unsigned int i, struct gpu **out) {
    if (i >= 2) return NOT_FOUND;
    *out = &mig[g->index][i];
    return OK;
}
int nvmlDeviceGetCurrPcieLinkGeneration(struct gpu *g, unsigned int *n) { *n = 5; return enter(g, LINK); }
int nvmlDeviceGetCurrPcieLinkWidth(struct gpu *g, unsigned int *n) { *n = 16; return enter(g, LINK); }
int nvmlDeviceGetMemoryInfo_v2(struct gpu *g, struct memory_v2 *m) {
    int error = enter(g, MEMORY);
    if (error) return error;
    if (m->version != 0x02000028) return INVALID;
    m->total = g->total;
    m->reserved = g->reserved;
    m->used = g->used;
    m->free = g->total - g->reserved - g->used;
    return OK;
}
int nvmlDeviceGetFieldValues(struct gpu *g, int n, struct field *f) {
    int error = enter(g, FIELDS);
    if (error) return error;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    for (int i = 0; i < n; i++) {
        int at = f[i].id == 197 ? 0 : f[i].id == 198 ? 1 : f[i].id == 138 ? 2 : f[i].id == 139 ? 3 : -1;
        f[i].timestamp = now.tv_sec * 1000000ll + now.tv_nsec / 1000;
        f[i].error = at < 0 ? UNSUPPORTED : g->value_error[at];
        if (at < 0) continue;
        g->counter[at] += traffic;
        f[i].type = g->value_type[at];
        memset(&f[i].value, 0xff, sizeof f[i].value); /* only the declared member is true */
        if (f[i].type == 1) f[i].value.ui = (unsigned int)g->counter[at];
        else f[i].value.ull = g->counter[at];
    }
    return OK;
}
int nvmlDeviceGetSamples(struct gpu *g, int type, unsigned long long since, int *kind,
                         unsigned int *n, struct sample *out) {
    int error = enter(g, SAMPLES);
    if (error) return error;
    unsigned int found = 0;
    for (int i = 0; i < g->samples && i < 16; i++)
        if (g->sample_us[i] > since) {
            if (out != NULL && found < *n) {
                out[found].stamp = g->sample_us[i];
                out[found].value.ui = g->sample_value[i];
            }
            found++;
        }
    *kind = 1;
    *n = found;
    return found ? OK : NOT_FOUND;
}
