# frozen_string_literal: true

module Heddle
  module ActiveRecordSupport
    # Prepended to ActiveRecord's ConnectionPool. Rails' setting +async_query_executor+ names one of two kinds of thread
    # pools for `load_async`, and leaves the rest without one: so whatever takes blocks may stand there, too.
    #
    # @api private
    module AsyncQueries
      private

      def build_async_executor
        executor = ::ActiveRecord.async_query_executor
        executor.respond_to?(:post) ? executor : super
      end
    end
    private_constant :AsyncQueries
  end
end
