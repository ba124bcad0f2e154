# frozen_string_literal: true

module Heddle
  module Compat
    # IO#sysread and IO#syswrite raise Errno::EAGAIN under a scheduler where they wait without one. Ruby calls the hooks
    # io_read and io_write in the same way for them, for IO#read_nonblock, which must not wait, and for IO#readpartial,
    # which waits by itself; the hooks cannot tell them apart. (4.0.5 has the defect.)
    module SysRead
      def sysread(...)
        super
      rescue Errno::EAGAIN
        SysRead.wait(self, IO::READABLE) || raise
        retry
      end

      def syswrite(...)
        super
      rescue Errno::EAGAIN
        SysRead.wait(self, IO::WRITABLE) || raise
        retry
      end

      # For as long as IO#timeout allows. False where another scheduler, or none, is in charge.
      def self.wait(io, events)
        scheduler = Fiber.current_scheduler
        return false unless scheduler.is_a?(Heddle::Scheduler)

        scheduler.io_wait(io, events, nil) || raise(IO::TimeoutError, "Blocking operation timed out!")
      end

      IO.prepend(self)
    end
  end
end
