# frozen_string_literal: true

module Heddle
  module RubyFixes
    # IO::Buffer#pwrite of Ruby 3.1 passes its offset to the scheduler with Ruby's tag, as 2n + 1, so that the bytes
    # would land in the wrong place of the file.
    module BufferPwrite
      def pwrite(io, length, offset)
        scheduler = Fiber.current_scheduler
        return super unless scheduler.is_a?(Loop)

        scheduler.io_pwrite(io, self, length, offset)
      end

      IO::Buffer.prepend(self)
    end
  end
end
