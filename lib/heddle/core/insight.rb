# frozen_string_literal: true

module Heddle
  # Tells `heddle ps`, `heddle tree`, `heddle top` and `heddle why` what this process does: see {Heddle.insight}.
  module Insight
    HELPER = "heddle insight"
    PATIENCE = 2.0 # seconds
    private_constant :HELPER, :PATIENCE

    @turn = Mutex.new # held by who starts or stops

    class << self
      # Listens, unless this process does already.
      #
      # @api private
      # @return [String] the socket's path
      # @raise [SystemCallError, Insecure, ThreadError]
      def start
        in_turn { (@pid == Process.pid && listens?) ? @path : start_anew }
      end

      # Ends listening and recording. Does nothing in a child of the process that listens.
      #
      # @api private
      # @return [nil]
      # @raise [ThreadError]
      def stop
        in_turn { stop_now }
      end

      # Makes a child of fork listen on its own, if its parent does.
      #
      # @api private
      # @return [void]
      def after_fork
        return unless @pid

        @pid = @helper = nil
        start
      rescue SystemCallError, ThreadError, Insecure => error
        warn "heddle: heddle ps cannot look into process #{Process.pid}: #{error.message}"
      end

      private

      # In a trap handler Mutex#synchronize would raise.
      def in_turn
        raise ThreadError, "this handler interrupts another call of Heddle.insight: call it later" if @turn.owned?

        limit = Clock.now + PATIENCE
        until (taken = @turn.try_lock)
          raise ThreadError, "another thread has been in Heddle.insight for #{PATIENCE} s" if Clock.now > limit

          sleep(0.01)
        end
        yield
      ensure
        @turn.unlock if taken
      end

      # An interrupt on the way must not leave a socket, or a thread, of which nobody knows.
      def start_anew
        load_reporter
        stop_now
        @path = nil
        @pid = Process.pid
        Folder.new(Folder.own).bind(@pid) { |free| listen(@path = free, Reporter.head) }
        start_helper
        self.record = true
        watch
        started = @path
      ensure
        stop_now unless started
      end

      def stop_now
        return unless @pid == Process.pid

        self.record = false
        stop_listening
        @helper&.kill
        @helper = nil
        Folder.remove(@path) if @path && File.socket?(@path)
        @pid = nil
      end

      # JSON and the code for answers are loaded only where somebody may ask; and once, because RubyGems' `require`
      # raises in a trap handler, which may fork.
      def load_reporter
        return if @loaded

        require "json"
        require_relative "../insight/folder"
        Insecure.include(Error) # the command loads that file without the rest of Heddle
        @loaded = true
      end

      def watch
        return if @watched

        AfterFork.register { after_fork }
        at_exit { stop }
        @watched = true
      end

      # The helper before this one was killed, but serves until its end.
      def serve_in_turn
        loop do
          serve { |question| Reporter.answer(question) }
          sleep(0.01)
        end
      end

      def start_helper
        helper = Thread.new { Heddle.background_thread { serve_in_turn } }
        helper.name = HELPER
        helper.report_on_exception = false
        helper.thread_variable_set(:fork_safe, true) # else Puma warns of a thread that a worker will not have
        @helper = helper
      end
    end
  end

  class << self
    # Lets the commands `heddle ps`, `tree`, `top` and `why` look into this process, and into its children of fork. Each
    # process listens on a UNIX socket of its own that answers only its own user, in `$XDG_RUNTIME_DIR/heddle` or
    # `/tmp/heddle-UID`. HEDDLE_INSIGHT=1 in the environment does the same when Heddle is loaded.
    #
    # From then on each task has a record, which costs two readings of the clock and some stores at each switch, and 150
    # bytes. A native thread answers, also while Ruby code or C code holds the GVL. A Ruby thread adds what only Ruby
    # knows. It waits outside of Ruby, so that Ruby no longer raises "No live threads left. Deadlock?".
    #
    # @param on [Boolean] false ends it
    # @return [String, nil] the path of the socket; nil with false
    # @raise [Insight::Insecure] if the folder of the sockets is not this user's own
    # @raise [SystemCallError] if the socket cannot be made
    # @raise [ThreadError] in a trap handler: at the first call, and while the code that it interrupts calls this
    def insight(on = true)
      on ? Insight.start : Insight.stop
    end
  end
end
