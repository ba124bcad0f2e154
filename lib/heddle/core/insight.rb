# frozen_string_literal: true

module Heddle
  # Tells `heddle ps`, `heddle tree`, `heddle top` and `heddle why` what this process does: see {Heddle.insight}.
  module Insight
    HELPER = "heddle insight"
    PATIENCE = 1.0 # seconds
    private_constant :HELPER, :PATIENCE

    class << self
      # Listens, unless this process does already.
      #
      # @api private
      # @return [String] the socket's path
      # @raise [SystemCallError, Insecure]
      def start
        return @path if listens_here?

        load_reporter
        # Under the lock of the folder, which a second thread that comes here waits for, too.
        Folder.new(Folder.own).bind(Process.pid) { |free| start_at(free) unless listens_here? }
        watch
        @path
      end

      # Ends listening and recording. Does nothing in a child of the process that listens.
      #
      # @api private
      # @return [nil]
      def stop
        return unless @pid == Process.pid

        @pid = nil
        self.record = false
        stop_listening
        helper = @helper
        @helper = nil
        helper&.kill&.join(PATIENCE) # only one at a time can serve: the next would find this one
        File.unlink(@path)
        nil
      rescue Errno::ENOENT
        nil
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

      def listens_here? = @pid == Process.pid && listens?

      def start_at(path)
        stop
        listen(path, Reporter.head)
        @pid = Process.pid
        @path = path
        start_helper
        self.record = true
      end

      # JSON and the code for answers are loaded only where somebody may ask.
      def load_reporter
        require "json"
        require_relative "../insight/folder"
        Insecure.include(Error) # the command loads that file without the rest of Heddle
      end

      def watch
        return if @watched

        @watched = true
        AfterFork.register { after_fork }
        at_exit { stop }
      end

      def start_helper
        helper = Thread.new { Heddle.background_thread { serve { |question| Reporter.answer(question) } } }
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
    def insight(on = true)
      on ? Insight.start : Insight.stop
    end
  end
end
