# frozen_string_literal: true

module Heddle
  module DB
    module ODBC
      # A statement whose rows are fetched some at a time.
      #
      # @api private
      class Cursor
        # @param driver [Driver]
        # @param handle [Handle] that was run
        def initialize(driver, handle)
          @driver = driver
          @handle = handle
        end

        # @return [Array<Array>, ServerError] no rows at the end
        def fetch(count) = @driver.fetch(@handle, count)

        def close = @handle.release
      end
    end
  end
end
