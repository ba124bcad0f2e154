# frozen_string_literal: true

module Heddle
  module RubyFixes
    # IO#sysread and IO#syswrite raise Errno::EAGAIN under a scheduler, but wait without a scheduler. Ruby calls the
    # hooks io_read and io_write in the same way for these methods, for IO#read_nonblock, which must not wait, and for
    # IO#readpartial, which waits on its own; the hooks cannot tell them apart. (4.0.5 has the defect.)
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

      # Waits for as long as IO#timeout allows. Returns false under another scheduler, or without a scheduler.
      def self.wait(io, events)
        scheduler = Fiber.current_scheduler
        return false unless scheduler.is_a?(Loop)

        scheduler.io_wait(io, events, nil) || raise(IO::TimeoutError, "Blocking operation timed out!")
      end

      IO.prepend(self)
    end
  end
end
