Warning[:experimental] = false
require "stringio"
rs = 4.times.map { Ractor.new { 200000.times { Object.new }; GC.start; 1 } }
m = ObjectSpace::WeakMap.new
20000.times { m[Enumerator::Yielder.new { }] = true; m[Thread::Queue.new] = true }
rs.each { |r| r.respond_to?(:value) ? r.value : r.take }
GC.start
p :ok
