// The helper: a Ruby thread that waits here without the GVL, and without cost, until somebody asks.
#include "insight/insight.h"

#include "os/fork.h"
#include "os/native_thread.h"

#include <ruby/thread.h>
#include <stdlib.h>
#include <string.h>

// Nanoseconds in all after which the answer goes out without the helper, however patient the asker is.
static const int64_t PATIENCE_IN_ALL = 60000000000;

static struct {
    pthread_mutex_t lock;
    pthread_cond_t asked, answered;
    bool ready; // the conditions are initialized
    bool present;
    bool interrupted;
    bool hurry;
    uint64_t question, taken, done; // numbers of questions; `question` is open unless it was withdrawn
    bool withdrawn;
    deadline_t progress;
    char words[QUESTION];
    char *text;
    size_t length;
} helper = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void set_up(void)
{
    if (helper.ready) return;
    native_condition_init(&helper.asked);
    native_condition_init(&helper.answered);
    helper.ready = true;
}

void helper_discard(void)
{
    memset(&helper, 0, sizeof(helper)); // its text is lost: the parent's malloc made it, and this is rare
    pthread_mutex_init(&helper.lock, NULL);
}

// ---- the server's thread

enum helped helper_ask(const char *question, int64_t patience, char **text, size_t *length)
{
    enum helped helped = HELPER_LATE;
    pthread_mutex_lock(&helper.lock);
    if (!helper.present) {
        pthread_mutex_unlock(&helper.lock);
        return HELPER_MISSING;
    }
    uint64_t number = ++helper.question;
    helper.withdrawn = false;
    strncpy(helper.words, question, QUESTION - 1);
    deadline_t start = helper.progress = deadline_real();
    pthread_cond_signal(&helper.asked);
    while (helper.done != number && helper.present && !helper.hurry) {
        deadline_t until = helper.progress + patience;
        if (until > start + PATIENCE_IN_ALL) until = start + PATIENCE_IN_ALL;
        if (deadline_real() >= until) break;
        native_condition_wait(&helper.answered, &helper.lock, until);
    }
    if (helper.done == number && helper.text) {
        *text = helper.text;
        *length = helper.length;
        helper.text = NULL;
        helped = HELPED;
    } else {
        helper.withdrawn = true;
    }
    pthread_mutex_unlock(&helper.lock);
    return helped;
}

void helper_hurry(bool hurry)
{
    pthread_mutex_lock(&helper.lock);
    helper.hurry = hurry;
    if (helper.ready) pthread_cond_broadcast(&helper.answered);
    pthread_mutex_unlock(&helper.lock);
}

// ---- the helper's thread

static bool asked(void)
{
    return helper.question != helper.taken && !helper.withdrawn;
}

static void *wait_for_question(void *unused)
{
    (void)unused;
    pthread_mutex_lock(&helper.lock);
    while (!asked() && !helper.interrupted)
        pthread_cond_wait(&helper.asked, &helper.lock);
    helper.interrupted = false;
    pthread_mutex_unlock(&helper.lock);
    return NULL;
}

static void interrupt_wait(void *unused)
{
    (void)unused;
    pthread_mutex_lock(&helper.lock);
    helper.interrupted = true;
    pthread_cond_broadcast(&helper.asked);
    pthread_mutex_unlock(&helper.lock);
}

static VALUE serve_questions(VALUE unused)
{
    (void)unused;
    for (;;) {
        rb_thread_call_without_gvl(wait_for_question, NULL, interrupt_wait, NULL);
        char words[QUESTION];
        pthread_mutex_lock(&helper.lock);
        bool open = asked();
        uint64_t number = helper.taken = helper.question;
        memcpy(words, helper.words, sizeof(words));
        helper.progress = deadline_real();
        pthread_mutex_unlock(&helper.lock);
        if (!open) continue;
        text_free(details_lines());
        rb_yield(rb_utf8_str_new_cstr(words));
        struct text answer = *details_lines();
        *details_lines() = (struct text){0};
        pthread_mutex_lock(&helper.lock);
        free(helper.text);
        helper.text = answer.failed ? NULL : answer.bytes;
        helper.length = answer.length;
        helper.done = number;
        pthread_cond_broadcast(&helper.answered);
        pthread_mutex_unlock(&helper.lock);
    }
    return Qnil;
}

static VALUE leave(VALUE forks)
{
    if (FIX2LONG(forks) != (long)fork_count()) return Qnil;
    pthread_mutex_lock(&helper.lock);
    helper.present = false;
    pthread_cond_broadcast(&helper.answered);
    pthread_mutex_unlock(&helper.lock);
    return Qnil;
}

/*
 * call-seq: Heddle::Insight.serve { |question| ... }
 *
 * Waits for questions, and calls the block with each, which adds lines to the answer. Ends only by an exception or a
 * kill. Does nothing if another thread serves.
 *
 * @api private
 */
static VALUE serve(VALUE self)
{
    (void)self;
    pthread_mutex_lock(&helper.lock);
    set_up();
    bool first = !helper.present;
    helper.present = true;
    if (first) helper.interrupted = false; // else it is the one before, which was killed, that is to wake
    pthread_mutex_unlock(&helper.lock);
    return first ? rb_ensure(serve_questions, Qnil, leave, LONG2FIX((long)fork_count())) : Qnil;
}

/*
 * call-seq: Heddle::Insight.give_way -> nil
 *
 * Between two slices of an answer: lets other threads run, and tells the caller that the answer goes on.
 *
 * @api private
 */
static VALUE give_way(VALUE self)
{
    (void)self;
    rb_thread_schedule();
    pthread_mutex_lock(&helper.lock);
    helper.progress = deadline_real();
    pthread_mutex_unlock(&helper.lock);
    return Qnil;
}

void helper_define(VALUE module)
{
    rb_define_singleton_method(module, "serve", serve, 0);
    rb_define_singleton_method(module, "give_way", give_way, 0);
    details_define(module);
}
