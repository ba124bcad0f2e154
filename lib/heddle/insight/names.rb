# frozen_string_literal: true

require_relative "clean"

module Heddle
  module Insight
    # What reports call tasks, threads and pools. Classes of a program may have methods of their own for that, which
    # raise.
    #
    # @api private
    module Names
      THREAD = ::Thread.instance_method(:name)
      THREAD_ID = ::Thread.instance_method(:native_thread_id)
      MODULE = ::Module.instance_method(:name)
      CLASS = ::Kernel.instance_method(:class)
      private_constant :THREAD, :THREAD_ID, :MODULE, :CLASS

      module_function

      # @param task [Task]
      # @return [String, nil] the task's own name
      def of_task(task)
        name = task.name
        Clean.clean(name) if name
      rescue
        nil
      end

      # @param task [Task]
      # @param number [Integer]
      # @return [String]
      def task(task, number = task.number)
        name = of_task(task)
        name ? "task #{number} \"#{name}\"" : "task #{number}"
      end

      # @param thread [Thread]
      # @return [String]
      def thread(thread)
        return "main thread" if thread.equal?(Thread.main)

        name = THREAD.bind_call(thread)
        name ? "thread #{Clean.quote(name)}" : "thread #{THREAD_ID.bind_call(thread) || "that has ended"}"
      end

      # @param number [Integer] the kernel's
      # @return [String]
      def native_thread(number)
        found = Thread.list.find { |each| THREAD_ID.bind_call(each) == number }
        found ? thread(found) : "thread #{number}"
      end

      # @param object [Object]
      # @return [String] the class's name
      def class_of(object) = class_name(CLASS.bind_call(object))

      # @param klass [Class]
      # @return [String]
      def class_name(klass) = Clean.clean(MODULE.bind_call(klass) || "object")

      # @param pool [Semaphore, ResourcePool, FiberPool, DB::Connection]
      # @return [String]
      def pool(pool)
        Clean.clean(pool.inspect)
      rescue => error
        "#<#{class_of(pool)}, whose method inspect raises #{class_of(error)}>"
      end
    end
  end
end
