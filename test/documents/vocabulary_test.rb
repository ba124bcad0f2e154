# frozen_string_literal: true

require "test_helper"

# The tree uses the field's words. Those on the left were its own once, and had to be learned before a line could be
# read; what took their place stands on the right.
class VocabularyTest < Minitest::Test
  ROOT = File.expand_path("../..", __dir__)
  WORDS = {
    /\bcarriers?\b/i => "worker fiber", /\bguests?\b|_guests?\b|\bguest_/i => "external task",
    /\bforeign[ _]schedulers?\b/i => "other scheduler", /\b(?:mutex_)?relock/i => "reacquire (a Mutex)",
    /\bown_thread/ => "background thread", /\bGate\b/ => "event count",
    /(?<!gem )pristine|plainness|(?<!rb_)nogvl|\bstruct place\b/i => "unpatched, override, without the GVL, context",
    /\blanes?\b|_lanes?\b/i => "worker", /\bdealers?\b/i => "dispatcher", /\brooms\b/i => "layers",
    /(?<!re)stri(?:ke|king)|struck/i => "interrupt", /\bLimit::Agent\b|limit.?s agents?\b/ => "coordinator",
    /SQLite.{0,4}(?:Line|Turn|Refusals|Shape)\b|sqlite_shape|@shape\b|MySQL2::Line\b|\bBounds\.new/ =>
      "WaitQueue, Waiter, ErrorMap, Columns, description, SocketWatch, PGRange",
    /query_told|run_told|know_classes|\bHolders\b|\.harmless\b/ => "watched, load_classes, LeaseOwners, sanitize",
    /query_keeping|run_keeping|keep_arrived|kept_notification|\bflights\b|in one flight/ =>
      "query_prepared, run_named, consume_input, queued_notification, round trips",
    %r{\bCompat\b|heddle/compat\b|HEDDLE_COMPAT|Heddle::Drivers\b} => "RubyFixes, Resolver, DatabaseGems",
    /NetHTTP::(?:Making|Starting|Transporting|Replacing|Connecting)\b|of_shadow|@shadow|\bmakes\?|Library\.starts\?/ =>
      "Initializer, Start, TransportRequest, MethodReplacement, Connect, replacement",
    /\b(?:db|mysql|postgresql|sqlite|odbc)_c?link|\bdb.*\/link\.[ch]\b/i =>
      "protocol, database, client (Driver#native)",
    /\bearly[ _]wake/i => "pending wakeup", /\bkept[ _]connections?\b/i => "persistent connection",
    /note_setting|skip_names|look_at_session|io_close_closing|os_gvl_|\breceiving\.c|(?:statement|handle)->shape\b/ =>
      "store_setting, skip_statement_ids, check_session, announce, receive_once.c, description",
    /leave_parent|forget_parents|abandon_parents|leave_for_good|leave_alone\b|forget_(?:all|methods|datagrams)\b/ =>
      "discard (what is the parent's, in a child of fork), unregister, open_breaker, close_all, clear, remove",
    /callers_turn|give_turn|\bTURN_(?:LAST|SOON|FIRST)\b|\bloop_admit|\badmission\.c/ => "resume order, yield"
  }.freeze
  FILES = "{*.md,Rakefile,Gemfile,{bin,script}/*,{doc,guides}/**/*.md," \
    "{lib,test,lab,odbc,rakelib,sig,examples}/**/*.{rb,rbs,md,rake},{ext,lab/ext,odbc/ext}/**/*.{c,h,rb}}"
  # Pages that YARD makes, and this list.
  EXEMPT = %r{\Adoc/api/|/vocabulary_test\.rb\z}

  def test_no_word_of_our_own
    found = Dir.glob(FILES, base: ROOT).grep_v(EXEMPT).flat_map do |file|
      text = File.read(File.join(ROOT, file), encoding: "UTF-8")
      names = WORDS.select { |word, _| word.match?(file) }.map { |word, better| [file, word, better] }
      names + WORDS.select { |word, _| word.match?(text) }.map { |word, better|
        [file, text.lines.find { |line| word.match?(line) }.to_s.strip[0, 80], better]
      }
    end
    assert_empty found
  end
end
