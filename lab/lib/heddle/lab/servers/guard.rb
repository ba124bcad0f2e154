# frozen_string_literal: true

module Heddle
  module Lab
    module Servers
      # Starts programs that end with this process, however it ends.
      #
      # setpriv asks the kernel for a signal on the death of the parent (PR_SET_PDEATHSIG). The kernel means the
      # *thread* that forked, so every program is started by one thread that lives as long as the process.
      module Guard
        # A library that is preloaded into this process (a sanitizer's) is not for the servers: postgres hangs with
        # AddressSanitizer's.
        CLEAN = {"LD_PRELOAD" => nil}.freeze

        @lock = Mutex.new

        class << self
          # Starts +argv+ with both outputs in the file +log+, as +user+ if given. Returns the pid.
          def spawn(env, argv, user:, signal:, log:)
            answer = Thread::Queue.new
            requests << [answer, CLEAN.merge(env), wrap(argv, user, signal), log]
            result = answer.pop
            raise result if result.is_a?(Exception)
            result
          end

          private

          def wrap(argv, user, signal)
            setpriv = Servers.find_program("setpriv")
            unless setpriv
              if user
                raise Unavailable, "#{argv.first} must run as #{user}, which needs setpriv (Debian package util-linux)"
              end
              return argv
            end
            identity = user ? ["--reuid=#{user}", "--regid=#{Etc.getpwnam(user).gid}", "--init-groups"] : []
            [setpriv, "--pdeathsig", signal.to_s, *identity, "--", *argv]
          end

          def requests
            @lock.synchronize do
              unless @owner == Process.pid
                @owner = Process.pid
                @requests = Thread::Queue.new
                start_thread(@requests)
              end
              @requests
            end
          end

          def start_thread(requests)
            Thread.new do
              Thread.current.name = "server guard"
              while (answer, env, argv, log = requests.pop)
                answer << begin
                  # A group of its own: Ctrl-C at the terminal ends the tests, and they end their servers in order.
                  Process.spawn(env, *argv, in: File::NULL, out: [log, "a"], err: [:child, :out], pgroup: true)
                rescue SystemCallError => e
                  e
                end
              end
            end
          end
        end
      end
    end
  end
end
