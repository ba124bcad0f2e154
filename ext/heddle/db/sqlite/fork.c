// A child of fork has the memory of its parent's connections, and none of their locks. SQLite believes that memory: it
// counts on the parent's locks for the child's own connections, and uses files that the child has not locked. So before
// a child opens a connection of its own, the files of its parent's connections are closed, without a word to the
// database, and SQLite forgets their locks. The connections themselves are never used again.
#include "db/sqlite/database.h"

#include "os/fork.h"

static struct sqlite_core *newest;

void sqlite_core_note(struct sqlite_core *core)
{
    core->older = newest;
    if (newest) newest->newer = core;
    newest = core;
}

void sqlite_core_forget(struct sqlite_core *core)
{
    if (core->newer) {
        core->newer->older = core->older;
    } else {
        newest = core->older;
    }
    if (core->older) core->older->newer = core->newer;
    core->older = core->newer = NULL;
}

// The beginning of sqlite3_file and of sqlite3_io_methods, version 2 ("OS Interface Open File Handle" on sqlite.org).
struct sqlite_file {
    const struct sqlite_methods *methods;
};

struct sqlite_methods {
    int version;
    int (*close)(struct sqlite_file *);
    void (*reads_writes_and_locks[11])(void);
    void (*map_shared[3])(void);
    int (*unmap_shared)(struct sqlite_file *, int deletes);
};

static void close_file(sqlite3 *db, const char *name, int which)
{
    struct sqlite_file *file = NULL;
    if (sqlite_api.file_control(db, name, which, &file) != SQLITE_OK || !file || !file->methods) return;
    const struct sqlite_methods *methods = file->methods;
    if (methods->version >= 2 && methods->unmap_shared) methods->unmap_shared(file, 0);
    methods->close(file);
    file->methods = NULL;
}

void sqlite_leave_files(struct sqlite_core *core)
{
    if (!core->db) return;
    const char *name = "main";
    for (int i = 0; name; i++) {
        if (sqlite_api.db_name) name = sqlite_api.db_name(core->db, i);
        if (!name) break;
        close_file(core->db, name, SQLITE_FCNTL_JOURNAL_POINTER);
        close_file(core->db, name, SQLITE_FCNTL_FILE_POINTER);
        if (!sqlite_api.db_name) break;
    }
    sqlite_core_forget(core);
    core->db = NULL;
}

void sqlite_discard_parents_files(void)
{
    for (struct sqlite_core *core = newest, *older; core; core = older) {
        older = core->older;
        if (core->born != fork_count()) sqlite_leave_files(core);
    }
}
