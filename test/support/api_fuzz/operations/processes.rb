# frozen_string_literal: true

module ApiFuzz
  module Operations
    # Children: their exit status is their own.
    module Processes
      # A child that is forked while another thread is inside a Fiber crashes on Ruby 3.1 and 3.2, and on 4.0 when it
      # unlocks a lock that a task of that thread waits for (doc/limits.md). On those Rubies such a child ends at
      # once.
      WHOLE_CHILDREN = RUBY_VERSION >= "3.3" && RUBY_VERSION < "4.0"

      # How a child ends, and by which status.
      WAYS = {
        leave: 7, return_from: 0, fail: 1, be_killed: :KILL, exit_in_a_task: 9, exceed_a_deadline: 10
      }.freeze

      def operation_command
        return unless chance(0.2)

        code = roll(100)
        pid = Process.spawn("exit #{code}")
        _, status = waiting("child #{pid}", -> { zombie?(pid) }) { Process.wait2(pid) }
        pid = nil
        expect(status.exitstatus == code, "a command ended by #{status} instead of #{code}")
      ensure
        Process.detach(pid) if pid
      end

      def operation_fork
        return unless chance(0.15)

        way = (WHOLE_CHILDREN || Thread.list.size <= 3) ? WAYS.keys.sample(random: @random) : :leave_at_once
        expected = WAYS.fetch(way, 8)
        pid = fork { round.in_child { send(way) } }
        _, status = waiting("forked child #{pid} (#{way})", -> { zombie?(pid) }) { Process.wait2(pid) }
        pid = nil
        ended = status.signaled? ? Signal.signame(status.termsig).to_sym : status.exitstatus
        expect(ended == expected, "a child that should #{way} ended by #{status}")
      ensure
        Process.detach(pid) if pid
      end

      # Its close waits for the child. On Ruby 3.1 that wait may last for ever in a plain thread that was interrupted,
      # also without Heddle.
      def operation_popen
        return unless chance(0.2)
        return if RUBY_VERSION < "3.3" && !task?

        io = IO.popen("cat", "r+")
        io.write(@name)
        io.close_write
        text = io.read
        expect(text == @name, "a program gave #{text.inspect}")
      ensure
        io&.close
      end

      private

      def zombie?(pid) = File.read("/proc/#{pid}/stat").include?(") Z ")

      def some_work
        Heddle.run { 3.times { |index| Heddle.spawn { sleep(0.001 * index) } } }
      end

      def leave
        some_work
        exit!(7)
      end

      def leave_at_once = exit!(8)

      def return_from = some_work

      def fail
        $stderr.reopen(File::NULL)
        Heddle.run { raise "on purpose" }
      end

      def be_killed
        Heddle.run { Process.kill(:KILL, Process.pid) && sleep }
      end

      def exceed_a_deadline
        Heddle.deadline(0.01) { sleep(5) }
        exit!(11)
      rescue Heddle::DeadlineExceeded
        exit!(10)
      end

      def exit_in_a_task
        Heddle.run do
          Heddle.spawn { sleep }
          Heddle.spawn { sleep(0) && exit(9) }
          sleep
        end
      end
    end
  end
end
